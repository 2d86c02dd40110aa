"""Users take turns, so that stations hear everybody whose task may hold two groups.

A policy that serves the same users of a task in every round leaves nobody to compare them with: two groups on one model
stay unseen, and those who are never served never train. While a model is free to be offered, the users of a task that
were heard most sit out, but never so many that fewer of them could be served than in the last round. A user that its
stations leave out although it was its turn counts as heard: it may be out of reach. Who was heard is public, so that
this costs no privacy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Memory = Mapping[str, npt.NDArray[Any]]

#: Memory: (U,) times that each user was heard since it has its task, or asked in vain; (U,) who was heard last;
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
    whose uploads arrived; unsettled: (K,) tasks that may hold two groups, while a model is free.
    """
    times = memory.get(HEARD, np.zeros(len(identities), dtype=np.int64))
    times = np.where(identities == before, times, 0)
    last = np.zeros(len(identities), dtype=bool)
    last[heard] = True
    in_vain = asked & ~np.isin(identities, identities[heard])
    return {HEARD: times + (last | in_vain), LAST: last, OPEN: unsettled}
