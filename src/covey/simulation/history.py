"""The result of a run: its records, and the summary made from them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.errors import CoveyError
from covey.federated import REASONS, LocalTraining, build_training
from covey.identification import matching
from covey.identification.rule import ScoreRule, rule_of
from covey.network import VIOLATION_KINDS
from covey.privacy import Ledger
from covey.privacy.accounting import METHODS
from covey.privacy.words import NEIGHBOURS
from covey.scenario import Scenario
from covey.simulation.accuracy_remarks import Above, above_majority, accuracy_remarks
from covey.simulation.exposure import single_upload, under_aggregation
from covey.simulation.group_remarks import group_remarks
from covey.simulation.record import RoundRecord

#: First lines of every report, by source of noise.
PRIVACY_NOTES: dict[str, str] = {
    "replay": (
        "Noise came from the run's seed so that the run can be repeated bit by bit: this run itself is NOT private."
        " Its epsilon is what the same run with privacy.noise = 'secure' would guarantee."
    ),
    "secure": "Noise came from the operating system's cryptographic source; epsilon below covers what was charged.",
    "off": "Noise was off: this run gives NO privacy guarantee.",
}
MASKED_NOTE = (
    "Uploads were masked: stations saw sums per task over all stations and how many users and samples each has, but no"
    " single upload and nobody's task. Stations that lie, and users who send nonsense, are not covered."
)
MEASURED_NOTE = (
    "Losses, accuracies and clipping statistics left the devices as they are: they are NOT protected, and epsilon does"
    " not cover them. Runs without --metrics do not ask for them."
)
BLIND_NOTE = (
    "Stations chose users without their tasks, but saw every upload in the clear: nothing hides tasks or uploads from"
    " them. This is for comparison with masked runs."
)


@dataclass
class History:
    """Results of a run, finished or interrupted.

    samples: (U,) X_i. groups: (U,) true groups. stations_m: (B, 2). models: (K, D) float32 last
    global models. start: losses and accuracies before the first round. upload_bits: of one upload on
    the air. records: one per round. milliseconds: what secure aggregation took on this machine, by side and phase.
    added: further remarks of whoever played the run.
    """

    scenario: Scenario
    seed: int
    policy: str
    rounds: int
    samples: NDArray[np.int64]
    groups: NDArray[np.int64]
    stations_m: NDArray[np.float64]
    clip: NDArray[np.float64]
    start: dict[str, Any]
    models: NDArray[np.float32]
    ledger: Ledger
    upload_bits: float
    served_rounds: NDArray[np.int64]
    records: list[RoundRecord] = field(default_factory=list)
    milliseconds: dict[str, float] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether all rounds were played."""
        return len(self.records) >= self.rounds

    def column(self, name: str) -> NDArray[Any]:
        """One number of every round, (T,), or (T, K) for lists by task and (T, G) by group; see docs/metrics.md."""
        return np.array([getattr(record, name) for record in self.records])

    def user_column(self, name: str) -> NDArray[Any]:
        """One number of every round and user, (T, U); see docs/metrics.md."""
        return np.array([getattr(record.users, name) for record in self.records])

    @property
    def notes(self) -> list[str]:
        """What a reader must know about this run's privacy before reading any number."""
        notes, rule = [PRIVACY_NOTES[self.scenario.privacy.noise]], rule_of(self.scenario)
        if self.scenario.security.mode != "none":
            notes.append({"masked": MASKED_NOTE, "blind": BLIND_NOTE}[self.scenario.security.mode])
        if isinstance(rule, ScoreRule):
            told, masked = rule.announcement, self.scenario.security.mode == "masked"
            notes.append((masked and told.masked_note) or told.note)
        if rule is not None and rule.note:
            notes.append(rule.note)
        if self.ledger.measured.any():
            notes.append(MEASURED_NOTE)
        infeasible = sum(record.noise_infeasible_tasks for record in self.records)
        if infeasible:
            notes.append(
                f"In {infeasible} task-rounds the noise cap (11e) could not be met together with the floor (11f);"
                " the floor was kept and the cap exceeded."
            )
        refused = np.flatnonzero(self.ledger.refusals > 0)
        if len(refused):
            notes.append(
                f"Budgets refused releases of {len(refused)} of {self.ledger.users} users (the first is user"
                f" {refused[0]}): who cannot pay an upload sits out from then on, who cannot pay an announcement keeps"
                " its task."
            )
        rejected = self.rejections()
        if rejected:
            words = ", ".join(f"{number} {REASONS[reason]}" for reason, number in rejected.items())
            notes.append(f"Stations turned uploads away: {words}.")
        return notes + self.remarks

    @property
    def above_majority(self) -> Above | None:
        """How far accuracy is above naming each user's most frequent class in the last round; None if not known."""
        return above_majority(self)

    @property
    def remarks(self) -> list[str]:
        """What else a reader should know, above all what happened to the groups; shown after the notes on privacy."""
        return self.added + accuracy_remarks(self) + group_remarks(self)

    def rejections(self) -> dict[str, int]:
        """How many users' uploads were turned away in a round, summed over rounds, by reason; only those that occur."""
        if not self.records:
            return {}
        flags = self.user_column("rejection")
        counts = {reason: int((flags & (1 << bit) > 0).sum()) for bit, reason in enumerate(REASONS)}
        counts["unexpected"] = int(self.column("unexpected_uploads").sum())
        return {reason: number for reason, number in counts.items() if number}

    def matched(self, record: RoundRecord) -> NDArray[np.int64]:
        """(K,) the group that each task stands for in a round, -1 for tasks without one; see `matching`."""
        return matching(record.users.identity, self.groups, self.scenario.network.tasks, self.scenario.groups)

    def shared_models(self) -> dict[int, list[int]]:
        """Tasks on which two or more groups sit in the last round, and these groups.

        A group sits on a task that more than half of its users have; only users whose task and group are known count.
        """
        if not self.records:
            return {}
        last, found = self.records[-1].users, dict[int, list[int]]()
        known = (last.identity >= 0) & (last.group >= 0)
        for group in np.unique(last.group[known]).tolist():
            users = np.bincount(last.identity[known & (last.group == group)])
            if 2 * users.max() > users.sum():
                found.setdefault(int(users.argmax()), []).append(group)
        return {task: groups for task, groups in sorted(found.items()) if len(groups) > 1}

    def unused_tasks(self) -> list[int]:
        """Tasks without users in the last round; empty where the task of a user is not known, which may be one."""
        if not self.records or (self.records[-1].users.identity < 0).any():
            return []
        return [task for task, users in enumerate(self.records[-1].task_users) if users == 0]

    def summary(self) -> dict[str, Any]:
        """The run in one dictionary, ready for JSON: totals, groups, tasks, users, privacy."""
        last = self.records[-1] if self.records else None
        result: dict[str, Any] = {
            "scenario": self.scenario.name,
            "policy": self.policy,
            "seed": self.seed,
            "rounds": len(self.records),
            "rounds_planned": self.rounds,
            "complete": self.complete,
            "notes": self.notes,
            "start": self.start,
        }
        if last is None:
            return result
        result["final"] = {
            name: getattr(last, name)
            for name in (
                "loss",
                "test_loss",
                "accuracy",
                "majority",
                "central",
                "personal_accuracy",
                "personal_test_loss",
                "clustering_accuracy",
                "adjusted_rand_index",
                "objective",
            )
        }
        above = self.above_majority
        result["above_majority"] = None if above is None else asdict(above)
        result["totals"] = self._totals()
        result["groups"] = self._groups(last)
        result["tasks"] = self._tasks(last)
        result["users"] = self._users(last)
        result["privacy"] = self._privacy()
        return result

    def _totals(self) -> dict[str, Any]:
        summed = (
            "served", "violators", *VIOLATION_KINDS, "broadcasts", "delay_s", "uplink_s", "downlink_s", "compute_s",
            "transmit_energy_j", "compute_energy_j", "station_energy_j", "refused_releases", "rejected_uploads",
            "lost_uploads", "closed_tasks", "protocol_bytes",
            "reward", "reward_without_penalty",
        )  # fmt: skip
        totals: dict[str, Any] = {name: _known_sum(self.column(name)) for name in summed}
        totals["rounds_with_violations"] = int((self.column("violators") > 0).sum())
        return totals

    def _groups(self, last: RoundRecord) -> dict[str, Any]:
        """Models and true groups side by side; what is not known is None or empty."""
        told, unused = bool((last.users.identity >= 0).all()), self.unused_tasks()
        return {
            "groups": self.scenario.groups if (last.users.group >= 0).any() else None,
            "tasks": self.scenario.network.tasks,
            "tasks_used": self.scenario.network.tasks - len(unused) if told else None,
            "unused_tasks": unused,
            "shared_models": {str(task): groups for task, groups in self.shared_models().items()},
        }

    def _tasks(self, last: RoundRecord) -> list[dict[str, Any]]:
        group_of_task = self.matched(last)
        return [
            {
                "task": task,
                "group": int(group_of_task[task]),
                "users": last.task_users[task],
                "served": int(self.column("task_served")[:, task].sum()),
                "accuracy": last.task_accuracy[task],
                "loss": last.task_loss[task],
                "group_loss_start": _of_group(self.start["group_loss"], group_of_task[task]),
                "group_loss": _of_group(last.group_loss, group_of_task[task]),
                "group_accuracy": _of_group(last.group_accuracy, group_of_task[task]),
            }
            for task in range(self.scenario.network.tasks)
        ]

    def _users(self, last: RoundRecord) -> list[dict[str, Any]]:
        group_of_task = self.matched(last)
        epsilons = self.ledger.epsilon()
        energy_j = self.user_column("energy_j").sum(axis=0)
        return [
            {
                "user": user,
                "samples": int(self.samples[user]),
                "group": int(self.groups[user]),
                "identity": int(last.users.identity[user]),
                "identity_right": self._right(group_of_task, last.users.identity[user], self.groups[user]),
                "served_rounds": int(self.served_rounds[user]),
                "loss": float(last.users.loss[user]),
                "accuracy": float(last.users.accuracy[user]),
                "majority": float(last.users.majority[user]),
                "central": float(last.users.central[user]),
                "personal_accuracy": float(last.users.personal_accuracy[user]),
                "rho": float(self.ledger.rho[user]),
                "epsilon": float(epsilons[user]),
                "energy_j": float(energy_j[user]),
            }
            for user in range(len(self.samples))
        ]

    @staticmethod
    def _right(group_of_task: NDArray[np.int64], identity: int, group: int) -> bool | None:
        """Whether an identity stands for the user's group; None where one of them is not known."""
        return None if min(identity, group) < 0 else bool(group_of_task[identity] == group)

    def _training(self) -> LocalTraining | None:
        """The local training; None where it cannot be imported here."""
        try:
            return build_training(self.scenario)[0]
        except CoveyError:
            return None

    def _costs(self, training: LocalTraining | None) -> NDArray[np.float64]:
        """(n,) rho of all noised uploads, round by round; NaN where the local training is not known."""
        found = [np.zeros(0)]
        for noise in self.user_column("noise_std"):
            users = np.flatnonzero(noise > 0)
            if training is None:
                found.append(np.full(len(users), np.nan))
            elif len(users):
                found.append(np.asarray(training.rho(self.clip[users], noise[users], self.samples[users])))
        return np.concatenate(found)

    def _privacy(self) -> dict[str, Any]:
        privacy = self.scenario.privacy
        spent = {method: self.ledger.epsilon(method) for method in METHODS}
        training = self._training()
        per_release = self._costs(training)
        return {
            "noise": privacy.noise,
            "adjacency": privacy.adjacency,
            "unit": privacy.unit,
            "v_max": privacy.v_max,
            "n_min": privacy.n_min,
            "target_epsilon": privacy.target_epsilon,
            "delta": privacy.delta,
            "clip": self.scenario.training.clip,
            "budget_epsilon": self.ledger.to_dict()["budget_epsilon"],
            "rho_per_release_mean": float(per_release.mean()) if len(per_release) else None,
            "rho_max": float(self.ledger.rho.max()),
            "rho_mean": float(self.ledger.rho.mean()),
            "epsilon_max": {method: float(values.max()) for method, values in spent.items()},
            "epsilon_mean": {method: float(values.mean()) for method, values in spent.items()},
            "neighbours": NEIGHBOURS[privacy.unit, privacy.adjacency],
            "rho_is_exact": not self.ledger.sampled,
            "single_upload": None if training is None else single_upload(self, training),
            "under_aggregation": None if training is None else under_aggregation(self, training),
            "identity": privacy.identity,
            "security": self.scenario.security.mode,
            "upload_bits": self.upload_bits,
            "identities_protected": not self.ledger.unprotected.any(),
            "releases": int(self.ledger.releases.sum()),
            "announcements": int(self.ledger.announcements.sum()),
            "unprotected_announcements": int(self.ledger.unprotected.sum()),
            "unprotected_measurements": int(self.ledger.measured.sum()),
            "rho_identity_max": float(self.ledger.spent["identity"].max()),
            "refusals": int(self.ledger.refusals.sum()),
        }


def _known_sum(values: NDArray[Any]) -> Any:
    """The sum of what is known; not a number when nothing is."""
    known = values[~np.isnan(values)]
    return known.sum().item() if len(known) or not len(values) else float("nan")


def _of_group(values: list[float], group: int) -> float:
    """The value of a group; not a number where it is not known."""
    return values[group] if 0 <= group < len(values) else float("nan")
