"""The text of docs/clustering.md around its numbers."""

from __future__ import annotations

import textwrap


def _lines(text: str) -> list[str]:
    return textwrap.dedent(text).strip().splitlines()


IDEA = _lines("""
## The idea

Users do not know their group; they try all models and take the one that suits them best. That goes wrong in one
way: **groups collide**. Users of one group soon agree, but two groups that like the same model best in the first
rounds seldom part again, and another model is left without users. Which groups collide is decided by the weights
that were drawn for the models, before anybody has learnt anything, and nothing in the rule itself brings an unused
model back. covey adds three things, each a setting:

- **A way back** (`clustering.rescue = true`, the default). When a model has no users, stations offer it to part of the
  users of a task that may hold two groups. To find such a task they compare the uploads of its users: the noised steps
  of a user along the path of its model are added up, older ones fading, and stations take products of two users' sums.
  The noise of two users is independent, so that products of one round have the right mean, whatever the noise;
  distances between uploads do not. (Sums over rounds are slightly biased: a later step answers to earlier noise that is
  in the model by then. For users of one group at the noise of `quick` the product came out about a tenth too small.)
  Sums of steps say more than sums of products: over n rounds the noise of a product falls by n instead of the square
  root of n, and users that were served in different rounds can be compared. (Steps of all users are kept up to 32 MB;
  beyond that, products of single rounds are added up.) If the best split of a task into two parts differs by more than
  chance explains, the free model is made from the steps of one part. Where noise would hide two groups, the split is a
  guess, in the largest task that may hold two; every offer that its users had before halves its weight. Either way the
  users decide by their own rule in the next round: those of one group meet again on one model. Two rounds pass between
  offers. Where no model is free, because a stray user holds one alone, that model is offered: on evidence, or once for
  the same users, for a single user may also be all there is of its group.
- **Turns** (`clustering.turns = true`, the default). A policy that serves the same user of each task in every round
  leaves nobody to compare it with: two groups on one model stay unseen, no model grows, and who is never served never
  trains. While a model can be offered, the users of a task that may hold two groups take turns: those that were heard
  most sit out, and at least as many stay as were served in the last round (though stations may not reach all of these
  at once). A user that nobody chooses costs a place once in each cycle. Policies see users that are not available.
- **A start that does not depend on luck** (`clustering.start = "release"`). All models are equal at first, so that
  all uploads start from the same weights and can be compared. Users carry drawn labels meanwhile, and the uploads
  of all are averaged into the one model. As soon as the uploads tell groups apart, or after three rounds, each
  group that was found gets a model made from its own uploads. The common model stays there for users who like it
  better; models that are left over are not sent.

**What stations see** is what they see anyway: noised uploads, how strong their noise is, and the tasks that users
announce. The true groups are known to simulated data only; they are used to measure, never to decide.

**Why no release is added.** Every upload is charged to its user before it leaves the device. What is computed from
uploads and from models that are broadcast anyway is post-processing, and costs nothing more; nobody is asked for
another upload or announcement. A run may still cost a user more or less than with the paper's start, because users
that change task are served in other rounds; the table below compares the totals. Announced tasks are a release of
their own, which the default (`privacy.identity = "raw"`) does not protect ([private identities](identities.md)):
with it, what is computed from announcements, and so which model is offered to whom, is not covered by epsilon either.

**Under masks** (`security.mode = "masked"`) stations see sums only, so nothing can be compared: the release
start is refused, and the way back is a copy. A free model becomes a copy of the most used one, devices that like both
equally toss a coin, and noise and different users drive the copies apart.

**More or fewer models than groups.** `network.tasks` models need not be as many as the groups. With too many, those
that nobody needs stay free and are not broadcast. With too few, groups share a model; with `clustering.max_tasks`
models are added, one at a time, where uploads show that two groups share one. A model that was not sent yet is unknown
to devices: nobody takes it before it is offered.

## The call

```sh
covey run paper_digits --out groups
covey run paper_digits --set network.tasks=2 --set clustering.max_tasks=6 --out growing
covey run paper_digits --set clustering.start=random --set clustering.rescue=false --out paper
```

The terminal and the report say what happened to the groups: models that were offered, in which round and why,
models without users, groups that share a model, and the estimated number of groups. `rounds.csv` has it by round
([metrics](metrics.md)).
""")

OFF = [
    "",
    *_lines("""
## The defaults

The way back is on, and users take turns. With `clustering.start = "random"` and `clustering.rescue = false`, which ends
turns too, a run has the paper's start and no way back, and is the same, bit by bit, as one of version 0.1.0; the
shipped policies, but that of `quick`, were trained on a surrogate of such runs. The figures, and `covey bound`, keep
the paper's start. Rules that stations compute from uploads or loss vectors, and `oracle`, have a way of their own to
begin and to fill models ([methods](methods.md)): neither setting matters to them.
"""),
]
