"""The persistent state of a device: its ledger, its task, its own models, and its answers of the last round.

Everything is written before anything leaves the device (write-ahead). The journal of charges is authoritative for the
privacy cost; answers are stored until the next round, so that a retry by the server gets the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from covey.deploy.app.wire import Packet, pack, unpack
from covey.errors import DataError, OutputError, ScenarioError
from covey.files import write_atomically
from covey.privacy import JOURNAL, GaussianReleases, Journal, Ledger, charge_lost, labelled, read_journal
from covey.privacy.ledger import KINDS, Cost, Kind
from covey.privacy.sampled import SampledSums, values_of
from covey.scenario.schema import Privacy

#: Relative tolerance within which two ledgers are considered equal.
ROUNDING = 1e-12
_ME = np.zeros(1, dtype=np.int64)


class DeviceState:
    """The private folder of one device.

    ledger: the privacy cost of this device over all runs. runs: the last round that was answered, by run.
    identity: the task that the device identified, by run. planned: an upload with the least noise that the device's own
    scenario allows, for which the order of its budget is chosen; see `Ledger.plan`. Open it only while holding the
    folder's lock.
    """

    def __init__(
        self,
        folder: Path,
        privacy: Privacy,
        budget_epsilon: float | None,
        planned: GaussianReleases | None = None,
    ) -> None:
        if budget_epsilon is not None and not 0 < budget_epsilon < math.inf:
            raise ScenarioError(
                f"the budget of a device, --budget-epsilon, is {budget_epsilon:g}; it must be a number above 0, or be"
                " left out for no limit"
            )
        self.folder = folder
        make_private(folder)
        self._journal = labelled(Journal(folder / JOURNAL), privacy.unit, privacy.adjacency)
        fresh = Ledger(
            1,
            delta=privacy.delta,
            adjacency=privacy.adjacency,
            unit=privacy.unit,
            budget_epsilon=budget_epsilon,
        )
        if planned is not None:
            fresh.plan(planned)
        try:
            self.ledger = charge_lost(fresh, read_journal(folder / JOURNAL), -1)
        except ValueError as error:
            raise DataError(
                f"{error}, so what this device has spent is not known; restore '{folder / JOURNAL}' from a backup"
            ) from None
        saved = self._read()
        self.runs: dict[str, int] = saved.get("runs", {})
        self.identity: dict[str, int] = saved.get("identity", {})
        self.ledger.unprotected[0] = saved.get("unprotected", 0)
        self.ledger.measured[0] = saved.get("measured", 0)
        self.ledger.refusals[0] = saved.get("refusals", 0)

    def charge(self, round: int, kind: Kind, cost: Cost) -> bool:
        """Charge a release, on disk before this returns; False, with nothing charged, if it exceeds the budget."""
        if not isinstance(cost, GaussianReleases):
            cost = np.atleast_1d(np.asarray(cost, dtype=np.float64))
        if not self.ledger.affordable(_ME, cost)[0]:
            self.ledger.refuse(_ME)
            self.save()
            return False
        self._journal.record(round, kind, _ME, cost)
        self.ledger.charge(_ME, cost, kind)
        return True

    def raise_to(self, round: int, totals: dict[Kind, float], sampled: SampledSums | None = None) -> None:
        """Raise the ledger to the server's totals where they are larger: the device's state may be an old backup."""
        for kind in KINDS:
            missing = totals.get(kind, 0.0) - float(self.ledger.spent[kind][0])
            if missing > ROUNDING * (1.0 + totals.get(kind, 0.0)):
                self._journal.record(round, kind, _ME, np.array([missing]))
                self.ledger.add_lost(_ME, missing, kind)
        lacking = None if sampled is None else self.ledger.sampled.lacks_of(sampled)
        for multiplier, rate, count in () if lacking is None else lacking[:, 1:].tolist():
            std, share = (values_of(np.array([level])) for level in (multiplier, rate))
            sums = GaussianReleases(std, np.ones(1), share, np.array([count]))
            self._journal.record(round, "gradient", _ME, sums)
            self.ledger.add_lost(_ME, sums)

    def begin(self, run: str, round: int) -> None:
        """Record that `round` of `run` is being answered; deletes the answers of the round before."""
        if self.runs.get(run, -1) < round:
            for old in self._answers().glob("*.answer"):
                old.unlink(missing_ok=True)
            self.runs[run] = round
            self.save()

    def stored(self, name: str, request: str) -> Packet | None:
        """The stored answer of this name, if it was to the same request; `LookupError` if to another one."""
        path = self._path(name)
        if not path.is_file():
            return None
        content = path.read_bytes()
        if content[:64].decode("ascii", "replace") != request:
            raise LookupError(name)
        return unpack(content[64:])

    def store(self, name: str, request: str, answer: Packet) -> None:
        """Store an answer, on disk before this returns."""
        write_atomically(self._path(name), request.encode() + pack(answer))

    def own_model(self, run: str, round: int, weights: int) -> NDArray[np.float32] | None:
        """The device's own model (D,) before `round` of a run; None where it has none yet. weights: D."""
        path = self._model_path(run)
        if not path.is_file():
            return None
        try:
            with safe_open(path, framework="numpy") as file:
                made = int(file.metadata()["round"])
                # A round that was trained and not answered is trained again, from where it began.
                name = "weights" if made < round else "before"
                found = file.get_tensor(name) if name in file.keys() else None  # noqa: SIM118
            if found is not None and (found.shape != (weights,) or found.dtype != np.float32):
                raise ValueError(f"it holds {found.dtype} of shape {found.shape}")
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"'{path}' is damaged ({error}); restore it from a backup, or delete it, and the device's own model"
                " begins anew"
            ) from None
        return found

    def keep_model(
        self, run: str, round: int, before: NDArray[np.float32] | None, weights: NDArray[np.float32]
    ) -> None:
        """Keep the device's own model (D,) of a run after `round`, and the one before, on disk before this returns."""
        arrays = {"weights": weights} | ({} if before is None else {"before": before})
        make_private(self._model_path(run).parent)
        write_atomically(self._model_path(run), save(arrays, metadata={"run": run, "round": str(round)}))

    def save(self) -> None:
        """Write the state that is not in the journal."""
        content = {
            "runs": self.runs,
            "identity": self.identity,
            "unprotected": int(self.ledger.unprotected[0]),
            "measured": int(self.ledger.measured[0]),
            "refusals": int(self.ledger.refusals[0]),
        }
        write_atomically(self.folder / "state.json", json.dumps(content).encode())

    def _read(self) -> dict[str, Any]:
        path = self.folder / "state.json"
        if not path.is_file():
            return {}
        try:
            saved: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return saved
        except (OSError, ValueError) as error:
            raise DataError(f"'{path}' is damaged ({error}); restore it from a backup, or delete it") from None

    def _answers(self) -> Path:
        folder = self.folder / "answers"
        folder.mkdir(exist_ok=True, mode=0o700)
        return folder

    def _model_path(self, run: str) -> Path:
        return self.folder / "models" / f"{hashlib.sha256(run.encode()).hexdigest()[:32]}.safetensors"

    def _path(self, name: str) -> Path:
        return self._answers() / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.answer"


def make_private(folder: Path) -> None:
    """Make a folder that only its owner may enter."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.chmod(folder, 0o700)
    except OSError as error:
        raise OutputError(
            f"cannot write '{folder}' ({error.strerror}), where the device keeps its ledger; give the device's folder"
            " to the user who starts it"
        ) from None
