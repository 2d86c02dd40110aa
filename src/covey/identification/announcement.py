"""How what users found out about their task leaves their devices, and what that costs.

An announcement is a part (`covey.parts.ANNOUNCEMENTS`): a class that is made with the scenario and the rule. `tell`
runs on the device; `find` runs at the stations, charges or labels what is told, and asks users through the fleet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from covey.errors import ScenarioError
from covey.identification.rule import Floats, Identification, Ints, RuleRound, ScoreRule, Trained
from covey.scenario import Scenario

if TYPE_CHECKING:
    from covey.federated.user_compute import UserCompute


class Announcement:
    """Base of all announcements.

    needs: see `covey.parts.NEEDS`; request: the kind of request by which devices are asked, empty where they are
    not; together: whether users of equal size can be computed at once; rho: cost of one announcement; note, words: for
    reports, a sentence and a few words; masked_note: the sentence where uploads are masked, so that tasks stay on the
    devices but decide which sum an upload is in; paper to limits: for `covey methods`, as those of `Rule`.
    """

    paper: ClassVar[str] = ""
    computes: ClassVar[str] = ""
    sees: ClassVar[str] = ""
    costs: ClassVar[str] = ""
    air: ClassVar[str] = ""
    suits: ClassVar[str] = ""
    limits: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()
    request: ClassVar[str] = ""
    together: ClassVar[bool] = False
    note: ClassVar[str] = ""
    masked_note: ClassVar[str] = ""
    words: ClassVar[str] = ""

    def __init__(self, scenario: Scenario, rule: ScoreRule) -> None:
        self.scenario, self.rule = scenario, rule

    @property
    def rho(self) -> float:
        """Cost of one announcement in zCDP; 0 where it is free or, as a raw one, not covered by any guarantee."""
        return 0.0

    @property
    def protected(self) -> bool:
        """Whether epsilon covers what is announced."""
        return True

    def noise_std(self, samples: Ints) -> Floats:
        """(n,) standard deviation of the noise on every number that users of so many samples tell; public."""
        return np.zeros(len(samples))

    def tell(self, compute: UserCompute, users: list[int], round: int, together: int) -> npt.NDArray[Any]:
        """What these users say, (n,) or (n, m); runs where their samples are, `together` users at once if it helps."""
        raise TypeError(f"{type(self).__name__} asks devices for nothing")

    def find(self, at: RuleRound) -> Identification:
        """The tasks of a round in which users announce."""
        return at.kept()

    def after_round(self, at: RuleRound, found: Identification, trained: Trained) -> Ints:
        """Tasks (U,) to begin the next round with."""
        return found.identities

    @property
    def batch(self) -> int:
        """Samples on which a user compares the models; 0 for all."""
        return self.scenario.clustering.batch

    def scored(self, samples: Ints) -> Ints:
        """(U,) samples on which each user compares the models."""
        return samples if self.batch == 0 else np.minimum(self.batch, samples)


class ChargedAnnouncement(Announcement):
    """Base of announcements with noise: charged `privacy.identity_rho` before they are drawn.

    Users that cannot afford it keep their task. All samples count, because the noise falls with their number.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"charge"})
    request: ClassVar[str] = "announce"
    costs: ClassVar[str] = "privacy.identity_rho per announcement"

    def __init__(self, scenario: Scenario, rule: ScoreRule) -> None:
        super().__init__(scenario, rule)
        if scenario.privacy.noise == "off":
            raise ScenarioError(
                f"privacy.identity is '{scenario.privacy.identity}' but privacy.noise is 'off'; use 'replay' or"
                " 'secure' noise, or raw identities"
            )
        if scenario.privacy.unit == "device":
            raise ScenarioError(
                f"privacy.identity is '{scenario.privacy.identity}', whose noise protects one sample, but privacy.unit"
                " is 'device'; use privacy.identity = 'from_release', which is made of uploads that are protected so"
            )

    @property
    def rho(self) -> float:
        """Cost of one announcement."""
        return self.scenario.privacy.identity_rho

    def find(self, at: RuleRound) -> Identification:
        """Users that do not sit out are charged, then asked."""
        ledger, everyone = at.ledger.copy(), np.flatnonzero(~at.exhausted)
        paid = ledger.charge(everyone, self.rho, "identity")
        users = everyone[paid]
        at.journal.record(at.round, "identity", users, np.full(len(users), self.rho))
        told = at.fleet.tell(at.round, users)
        if told is None:
            identities, memory = at.identities.copy(), at.memory
            identities[users] = -1
        else:
            identities, memory = self.rule.hear(told, users, at)
        return Identification(identities, ledger, refused=everyone[~paid], memory=memory)

    @property
    def batch(self) -> int:
        """All samples."""
        return 0


def checked(told: Any, users: int, tasks: int, scenario: Scenario) -> npt.NDArray[Any]:
    """What `users` users told, if it is one task or one vector of floats for each of them."""
    why = ""
    if not isinstance(told, np.ndarray) or told.ndim not in (1, 2):
        shape = f" of shape {told.shape}" if isinstance(told, np.ndarray) else ""
        why = f"{type(told).__name__}{shape}"
    elif len(told) != users:
        why = f"{len(told)} answers for {users} users"
    elif told.ndim == 2 and told.dtype.kind != "f":
        why = f"vectors of {told.dtype}"
    elif told.ndim == 1 and told.dtype.kind not in "iu":
        why = f"tasks of type {told.dtype}"
    elif told.ndim == 1 and users and not (told.min() >= -1 and told.max() < tasks):
        why = f"tasks from {told.min()} to {told.max()}"
    if why:
        raise ScenarioError(
            f'clustering.rule = "{scenario.clustering.rule}" with privacy.identity = "{scenario.privacy.identity}" told'
            f" {why}; tell a whole number from 0 to {tasks - 1}, or -1 for no answer, or a vector of floats, for each"
            " user"
        )
    found: npt.NDArray[Any] = told
    return found


def answers(told: npt.NDArray[Any], users: Ints, at: RuleRound, rule: ScoreRule) -> Ints:
    """Tasks (U,) that stations make of what `users` (n,) said; -1 or NaN stands for no answer, and keeps the task."""
    told = checked(told, len(users), at.tasks, at.scenario)
    heard = ~np.isnan(told).any(axis=1) if told.ndim == 2 else told >= 0
    identities = at.identities.copy()
    if told.ndim == 1:
        identities[users] = np.where(heard, told, identities[users])
        return identities if len(users) < at.users else rule.assign(identities, at)
    assigned = rule.assign(told, at)
    identities[users] = np.where(heard, assigned, identities[users])
    return identities
