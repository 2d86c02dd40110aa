"""`raw`: users announce what they found as it is, as in the paper; no guarantee covers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from covey.identification.announcement import Announcement, answers
from covey.identification.rule import Identification, RuleRound

if TYPE_CHECKING:
    from covey.federated.user_compute import UserCompute


class Raw(Announcement):
    """What the rule makes of losses and similarity on a batch of samples, labelled as unprotected.

    An announcement tells something about the user's data that nothing bounds; where stations see only masked sums,
    nothing is announced.
    """

    request: ClassVar[str] = "identify"
    together: ClassVar[bool] = True
    note: ClassVar[str] = (
        "Identities are NOT protected: tasks are computed from private data and announced as they are, and epsilon"
        " does not cover them."
    )
    words: ClassVar[str] = "announced as they are, not protected"

    @property
    def protected(self) -> bool:
        """False."""
        return False

    def tell(self, compute: UserCompute, users: list[int], round: int, together: int) -> npt.NDArray[Any]:
        """What the rule says from losses and similarity, (n,) or (n, m)."""
        return self.rule.tell(compute, users, round, self.batch, together)

    def find(self, at: RuleRound) -> Identification:
        """Everybody is asked; users that do not answer keep their task, but may have told it, and are labelled too."""
        everyone = np.arange(at.users)
        told = at.fleet.tell(at.round, everyone)
        identities = np.full(at.users, -1) if told is None else answers(told, everyone, at, self.rule)
        ledger = at.ledger
        if not at.masked:
            ledger = ledger.copy()
            ledger.label_unprotected(everyone)
        return Identification(identities, ledger, memory=at.memory)
