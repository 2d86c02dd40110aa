"""Users take turns, so that stations hear everybody whose task may hold two groups.

A policy that serves the same users of a task in every round leaves nobody to compare them with: two groups on one model
stay unseen, and those who are never served never train. While a model is free to be offered, the users of a task that
were heard most sit out. At least as many of them stay as were served in the last round, though stations may not reach
all of these at once. Where fewer were heard than in the round before, those who stayed and were not count as heard, so
that a user whom no policy chooses costs a place only once until all had their turn. Turns follow from announced tasks,
uploads and who was heard: they make no release of their own, and change who is served, and so who pays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Memory = Mapping[str, npt.NDArray[Any]]

#: Memory: (U,) times that each user was heard since it has its task, or stayed in vain; (U,) who was heard last;
#: (K,) tasks whose users take turns.
HEARD, LAST, OPEN = "turns.heard", "turns.last", "turns.open"


def taking_turns(memory: Memory) -> bool:
    """Whether the users of some task take turns."""
    return OPEN in memory and bool(memory[OPEN].any())


def resting(identities: Ints, reachable: Bools, memory: Memory) -> Bools:
    """(U,) users that sit out, from their tasks (U,), whom stations can serve (U,), and what is remembered."""
    rest = np.zeros(len(identities), dtype=bool)
    heard, last = memory[HEARD], memory[LAST]
    for task in np.flatnonzero(memory[OPEN]):
        mine = np.flatnonzero((identities == task) & reachable)
        served = max(int((last & (identities == task)).sum()), 1)
        if len(mine) > served:
            # All that were heard as rarely as the last of them stay.
            rest[mine] = heard[mine] > np.partition(heard[mine], served - 1)[served - 1]
    return rest


def after_turns(
    before: Ints, identities: Ints, asked: Bools, heard: Ints, unsettled: Bools, memory: Memory
) -> dict[str, npt.NDArray[Any]]:
    """What to remember after a round.

    before, identities: (U,) tasks of the last round and of this one; asked: (U,) who could be served; heard: (n,) users
    whose uploads arrived; unsettled: (K,) tasks that may hold two groups, while a model is free. Without a known task
    (-1) nobody takes turns.
    """
    times = memory.get(HEARD, np.zeros(len(identities), dtype=np.int64))
    times = np.where(identities == before, times, 0)
    last = np.zeros(len(identities), dtype=bool)
    last[heard] = True
    before_last = memory.get(LAST, np.zeros(len(identities), dtype=bool))
    members = identities == np.arange(len(unsettled))[:, None]
    fewer = (members & last).sum(axis=1) < np.maximum((members & before_last).sum(axis=1), 1)
    in_vain = asked & members[fewer].any(axis=0)
    return {HEARD: times + (last | in_vain), LAST: last, OPEN: unsettled}
