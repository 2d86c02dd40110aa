# %% [markdown]
# # A policy of your own against the references
#
# A policy is a function: it sees the network as an `Observation` and answers which users each station wants to serve.
# What breaks a rule is taken out and counted, so a simple policy is easy to write. Whether it is any good is a question
# for many layouts, not for one run.
#
# Run this file with `python examples/own_policy.py`.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import covey
from covey.association import get_policy
from covey.evaluation import compare, mean_interval

OUT = Path("runs/examples")
OUT.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## The policy
#
# Each task gets a turn: the user of the task with the strongest link to a station that can run it is taken first, then
# the second of each task, and so on, as long as the station has blocks left. Compare with `greedy`, which takes as many
# samples as fit, whichever task they belong to.


# %%
def fair_turns(observation: covey.Observation, rng: np.random.Generator) -> np.ndarray:
    """(B, U) bool: users of all tasks in turn, strongest links first."""
    stations, users = observation.eligible.shape
    chosen = np.zeros((stations, users), dtype=bool)
    gains = np.where(observation.eligible.T, observation.gains, 0.0)  # (U, B), 0 where the station may not
    best = gains.argmax(axis=1)
    by_strength = np.argsort(-gains.max(axis=1))
    place = np.zeros(users, dtype=int)  # first, second, ... of its task
    for task in np.unique(observation.identities):
        members = by_strength[observation.identities[by_strength] == task]
        place[members] = np.arange(len(members))
    for user in by_strength[np.argsort(place[by_strength], kind="stable")]:
        station = best[user]
        if gains[user, station] > 0 and chosen[station].sum() < observation.blocks:
            chosen[station, user] = True
    return chosen


# %% [markdown]
# ## The same, checked before it is sent
#
# `fair_turns` looks at no link but the strongest. Links in the same block disturb each other, and broadcasts must fit
# in the downlink. `project` is what covey itself applies to a choice: it keeps what can be served. A policy may ask it
# first.


# %%
def checked_turns(observation: covey.Observation, rng: np.random.Generator) -> np.ndarray:
    """(B, U) bool: what is left of `fair_turns` when everything that would break a rule is taken out."""
    stations = len(observation.capable)
    plan = observation.project(fair_turns(observation, rng))
    return plan.station == np.arange(stations)[:, None]


# %% [markdown]
# ## Judge them
#
# All policies play the same layouts, so differences can be paired. `learning="surrogate"` takes microseconds a round;
# `learning="real"` trains models in every round and is the last word.

# %%
scenario = covey.load_scenario("quick")
policies = {name: get_policy(name) for name in ("random", "nearest", "greedy", "local_search")}
policies |= {"fair_turns": fair_turns, "checked_turns": checked_turns}
comparison = compare(scenario, policies, seeds=range(10))
for result in comparison.results:
    print(
        f"{result.policy:>13}: reward {result.reward.mean():8.0f}, {result.violators.mean():4.1f} violating users,"
        f" {result.served.mean():4.1f} served per round"
    )

# %% [markdown]
# ## What it costs, and what it breaks
#
# The reward is the negative of loss and leakage, less a penalty that grows with the square of the violating users. The
# two parts are drawn apart: a policy can look good on the left because it pays on the right.

# %%
names = [result.policy for result in comparison.results]
costs = [mean_interval(-result.without_penalty) for result in comparison.results]
broken = [mean_interval(result.violators) for result in comparison.results]
figure, panels = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
titles = ("loss and leakage of an episode", "violating users in an episode")
for axes, values, title, colour in zip(panels, (costs, broken), titles, ("#2f6db3", "#d1731f"), strict=True):
    errors = [[v.value - v.low for v in values], [v.high - v.value for v in values]]
    axes.barh(names, [v.value for v in values], xerr=errors, color=colour, ecolor="#444444", capsize=3)
    axes.set(xlabel=title + " (lower is better)", xlim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
panels[0].invert_yaxis()
figure.suptitle(f"Means over {len(comparison.seeds)} layouts with 95 % intervals", fontsize=10)
figure.savefig(OUT / "own_policy.png", dpi=110)
print(f"wrote {OUT / 'own_policy.png'}")

# %% [markdown]
# ## Is the difference real?
#
# An interval that contains 0 means that these layouts do not tell the two apart.

# %%
for reference in ("random", "greedy"):
    difference = comparison.relative("checked_turns", reference)
    print(
        f"checked_turns against {reference}: {difference.value:+.1f} % of its reward"
        f" [{difference.low:+.1f}, {difference.high:+.1f}]"
    )
