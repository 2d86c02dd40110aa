"""`raw`: users announce what they found as it is, as in the paper; no guarantee covers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from covey.identification.announcement import Announcement, checked
from covey.identification.rule import Identification, RuleRound

if TYPE_CHECKING:
    from covey.federated.user_compute import UserCompute


class Raw(Announcement):
    """What the rule makes of losses and similarity on a batch of samples, labelled as unprotected.

    An announcement tells something about the user's data that nothing bounds. Where stations see only masked sums the
    task stays on the device, but decides which sum the upload is in: how many users and samples each sum has, and the
    sums, depend on it, and nothing bounds that either.
    """

    paper: ClassVar[str] = "as in most papers"
    computes: ClassVar[str] = "what its rule asks for"
    sees: ClassVar[str] = "stations see what a user tells as it is"
    costs: ClassVar[str] = "nothing is charged, and nothing is protected"
    air: ClassVar[str] = "what its rule tells: a task, or K losses"
    suits: ClassVar[str] = "references, and data that need no protection"
    limits: ClassVar[str] = (
        "where epsilon has to cover all that leaves a device, masked sums included: tasks decide what is in which sum"
    )
    request: ClassVar[str] = "identify"
    together: ClassVar[bool] = True
    note: ClassVar[str] = (
        "Identities are NOT protected: tasks are computed from private data and announced as they are, and epsilon"
        " does not cover them."
    )
    masked_note: ClassVar[str] = (
        "Identities are NOT protected: each user's task, found from private data without noise, decides which sum its"
        " upload is in, stations see the numbers of users and samples and the sum of every opened task, and epsilon"
        " does not cover what these tell of the tasks."
    )
    words: ClassVar[str] = "announced as they are, not protected"

    @property
    def protected(self) -> bool:
        """False."""
        return False

    def tell(self, compute: UserCompute, users: list[int], round: int, together: int) -> npt.NDArray[Any]:
        """What the rule says from losses and similarity, (n,) or (n, m); of equal models, each user tosses for one."""
        told = self.rule.tell(compute, users, round, self.batch, together)
        told = checked(told, len(users), len(compute.models), self.scenario)
        return compute.toss(users, round, told) if told.ndim == 1 else told

    def find(self, at: RuleRound) -> Identification:
        """Everybody is asked; users that do not answer keep their task, but may have told it, and are labelled too."""
        everyone = np.arange(at.users)
        told = at.fleet.tell(at.round, everyone)
        identities, memory = np.full(at.users, -1), at.memory
        if told is not None:
            identities, memory = self.rule.hear(told, everyone, at)
        ledger = at.ledger.copy()
        ledger.label_unprotected(everyone)
        return Identification(identities, ledger, memory=memory)
