"""Fits the surrogate to real runs, and stores the result with the settings that it was fitted to."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from scipy.optimize import lsq_linear

from covey.arrays import BoolArray, FloatArray, IntArray
from covey.association import Policy, coverage, greedy, random
from covey.data import data_root
from covey.environment.surrogate import Constants, composition, learn, recursion
from covey.errors import ScenarioError
from covey.files import write_atomically
from covey.network import Observation
from covey.parts import PERSONALS
from covey.scenario import Scenario
from covey.scenario.first_values import FIRST_VALUES
from covey.scenario.load import scenario_from_dict, source_of
from covey.seeding import generator
from covey.simulation import Simulation

#: Calibrations of the presets, shipped with covey.
SHIPPED = Path(__file__).parent / "calibrations"
#: First seed of the runs of a calibration; evaluation uses other seeds.
FIRST_SEED = 1000
#: One in this many runs is held out to measure the error of the fit.
_HELD_OUT_EVERY = 4
#: Knots of the piecewise linear term of the fit, at quantiles of the observed losses.
_KNOTS = 6
#: Weight in the fit of a group's loss on a model that no user of the group trained.
_WEIGHT_OF_STRANGERS = 0.1
#: Errors drawn per real announcement when their standard deviation is fitted.
_JUDGEMENTS = 20


@dataclass(frozen=True)
class Trace:
    """The data of one real run that the surrogate is fitted to: arrays are (T, U) unless noted.

    samples, groups: (U,); weights: model weights D; losses: (T + 1, U, K) every user's mean loss on every model, before
    each round and after the last one.
    """

    seed: int
    weights: int
    samples: IntArray
    groups: IntArray
    identities: IntArray
    served: BoolArray
    noise_std: FloatArray
    losses: FloatArray


@dataclass(frozen=True)
class Error:
    """Error of the surrogate on held-out real runs.

    one_step_rmse, one_step_r2: of the change of a group's loss in a served round; rollout_rmse: of the mean loss of
    all users over whole runs, given the real identities and served users; rollout_correlation: between predicted and
    real accumulated losses of the runs (0 with fewer than three held-out runs).
    """

    runs_fitted: int
    runs_kept_out: int
    one_step_rmse: float
    one_step_r2: float
    rollout_rmse: float
    rollout_correlation: float


@dataclass(frozen=True)
class Calibration:
    """Constants of the surrogate with the hash of the settings that they were fitted to."""

    scenario: str
    hash: str
    settings: dict[str, Any]
    version: str
    weights: int
    seeds: tuple[int, ...]
    constants: Constants
    error: Error

    def check(self, scenario: Scenario) -> None:
        """Raise `ScenarioError` unless this calibration was fitted to the learning settings of `scenario`."""
        if learning_hash(scenario) == self.hash:
            return
        now, then = learning_settings(scenario), self.settings
        changed = sorted(key for key in now.keys() | then.keys() if now.get(key) != then.get(key))
        raise ScenarioError(
            f"the calibration of '{self.scenario}' is stale: {', '.join(changed)} differ from scenario"
            f" '{scenario.name}'; fit a new one with: covey calibrate {scenario.name}"
        )

    def save(self, path: Path) -> None:
        """Write the calibration as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        values = asdict(self) | {"constants": self.constants.to_dict()}
        write_atomically(path, (json.dumps(values, indent=1) + "\n").encode())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a calibration; `ScenarioError` when the file is missing or is not one."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                **{
                    **values,
                    "seeds": tuple(values["seeds"]),
                    "constants": Constants.from_dict(values["constants"]),
                    "error": Error(**values["error"]),
                }
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ScenarioError(
                f"'{path}' cannot be read as a calibration ({error}); write one with covey calibrate"
            ) from None


#: Options that the first calibrations did not know, by section, with the values that they were fitted with.
_FIRST_FITTED: Final[Mapping[str, Mapping[str, Any]]] = {
    "clustering": {
        **FIRST_VALUES["clustering"],
        "announce_every": 1,
        "announce_rounds": None,
        "max_tasks": None,
        "first_tasks": None,
    },
    "data": {"group_sizes": None, "rotations": None, "over_time": "constant", "transform": "none"},
    "training": {
        "local": "step",
        "steps": 1,
        "epochs": None,
        "sampling": "fixed",
        "optimizer": "sgd",
        "momentum": 0.0,
        "weight_decay": 0.0,
        "proximal": 0.0,
        "schedule": "constant",
        "loss": "cross_entropy",
        "aggregation": "mean",
        "server": "mean",
        "server_rate": 1.0,
        "server_momentum": 0.9,
    },
}
_FIRST_CONTRAST_BOUND = 1.0
#: Models that stay on devices change nothing about those of the tasks; those that are uploaded do.
_PERSONAL = {f"personal{option}" for option in ("", "_steps", "_batch", "_rate", "_pull")}


def _uploaded_models(scenario: Scenario) -> dict[str, Any]:
    """The settings of personal models that uploads are made from; none for those that stay on devices."""
    training = scenario.training
    if training.personal == type(training).model_fields["personal"].default:
        return {}
    part = PERSONALS.get(training.personal)
    read = {"personal", *part.options} if getattr(part, "uploads", False) else set()
    return training.model_dump(mode="json", include=read)


def learning_settings(scenario: Scenario) -> dict[str, Any]:
    """Everything in a scenario that shapes how models learn, by key; radio, places and rewards do not."""
    if scenario.privacy.target_epsilon is not None:
        raise ScenarioError(
            "the surrogate learns from privacy.v_max, but privacy.target_epsilon is given, whose cap depends on the"
            " users; leave the target out and set privacy.v_max to the cap that a run's summary.json shows"
        )
    data = scenario.data.model_dump(mode="json", exclude={"path", "groups"})
    if scenario.groups != scenario.network.tasks:
        data["groups"] = scenario.groups
    training = scenario.training.model_dump(mode="json", exclude={"rounds", *_PERSONAL})
    training |= _uploaded_models(scenario)
    privacy: dict[str, Any] = {
        "v_max": scenario.privacy.v_max,
        "n_min": scenario.privacy.n_min,
        "noise": scenario.privacy.noise != "off",
    }
    # Left out where they are as in the first fits, whose hash stays; a changed default asks for a fit of its own.
    clustering = scenario.clustering.model_dump(mode="json")
    for section, values in (("clustering", clustering), ("data", data), ("training", training)):
        for option, first in _FIRST_FITTED[section].items():
            if values[option] == first:
                del values[option]
    if scenario.privacy.identity != "raw":
        privacy |= {name: getattr(scenario.privacy, name) for name in ("identity", "identity_rho", "loss_bound")}
        if scenario.privacy.contrast_bound != _FIRST_CONTRAST_BOUND:
            privacy["contrast_bound"] = scenario.privacy.contrast_bound
    if scenario.privacy.unit != "sample":
        privacy["unit"] = scenario.privacy.unit
    if scenario.security.mode != "none":
        privacy["security"] = scenario.security.mode
    if scenario.radio.loss_probability > 0:
        privacy["loss_probability"] = scenario.radio.loss_probability
    sections: dict[str, dict[str, Any]] = {
        "network": {"tasks": scenario.network.tasks},
        "data": data,
        "model": scenario.model.model_dump(mode="json"),
        "clustering": clustering,
        "training": training,
        "privacy": privacy,
    }
    return {f"{section}.{key}": value for section, values in sections.items() for key, value in values.items()}


def learning_hash(scenario: Scenario) -> str:
    """A short hash of `learning_settings`."""
    return hashlib.sha256(json.dumps(learning_settings(scenario), sort_keys=True).encode()).hexdigest()[:16]


def calibration_path(scenario: Scenario) -> Path:
    """Where `covey calibrate` stores the calibration for the learning settings of this scenario."""
    return data_root() / "calibrations" / f"{learning_hash(scenario)}.json"


def find_calibration(scenario: Scenario) -> Calibration | None:
    """The calibration for the learning settings of `scenario`: a local one, else a shipped one, else None."""
    wanted = learning_hash(scenario)
    for path in (calibration_path(scenario), *sorted(SHIPPED.glob("*.json"))):
        if path.is_file():
            found = Calibration.load(path)
            if found.hash == wanted:
                return found
    return None


def calibration_for(scenario: Scenario) -> Calibration:
    """The calibration for the learning settings of `scenario`, or a `ScenarioError` that says how to get one."""
    found = find_calibration(scenario)
    if found is None:
        raise ScenarioError(
            f"there is no calibration for how scenario '{scenario.name}' learns; fit one with: covey calibrate"
            f" {shlex.quote(source_of(scenario))} (same --set options), or use real rounds"
        )
    return found


def calibrate(
    scenario: Scenario,
    *,
    runs: int,
    first_seed: int = FIRST_SEED,
    processes: int = 1,
    on_run: Callable[[Trace], None] | None = None,
) -> Calibration:
    """Play `runs` real runs and fit the surrogate to them.

    Runs alternate between a policy that serves a random number of users, one that serves as many as it can, and one
    that serves a user of every task, so that the fit covers few and many users, early and late in training.
    """
    if runs < 2:
        raise ScenarioError(f"runs is {runs}; a calibration needs at least 2, one to fit and one to check")
    seeds = range(first_seed, first_seed + runs)
    traces = collect(scenario, seeds, processes=processes, on_run=on_run)
    return fit(scenario, traces)


def collect(
    scenario: Scenario, seeds: Sequence[int], *, processes: int = 1, on_run: Callable[[Trace], None] | None = None
) -> list[Trace]:
    """Traces of real runs with these seeds, in their order."""
    values = scenario.model_dump(mode="json")
    traces = []
    if processes == 1:
        for index, seed in enumerate(seeds):
            traces.append(_play(values, seed, index))
            if on_run is not None:
                on_run(traces[-1])
        return traces
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for trace in pool.map(_play, [values] * len(seeds), seeds, range(len(seeds))):
            traces.append(trace)
            if on_run is not None:
                on_run(trace)
    return traces


def policy_of_run(index: int) -> Policy:
    """The policy under which a calibration plays its run `index`."""
    return (exploring, greedy, coverage)[index % 3]


def exploring(observation: Observation, rng: np.random.Generator) -> BoolArray:
    """A random valid selection of which a random share is kept, so that runs cover few and many served users."""
    selected = random(observation, rng)
    return selected & (rng.random(selected.shape[1]) < rng.uniform(0.1, 1.0))


def _play(values: dict[str, Any], seed: int, index: int) -> Trace:
    with Simulation(scenario_from_dict(values), policy_of_run(index), seed=seed) as simulation:
        losses = [_all_losses(simulation)]
        while not simulation.done:
            simulation.play()
            losses.append(_all_losses(simulation))
        history = simulation.history
    return Trace(
        seed=seed,
        weights=int(history.models.shape[1]),
        samples=history.samples,
        groups=history.groups,
        identities=history.user_column("identity").astype(np.int64),
        served=history.user_column("station") >= 0,
        noise_std=history.user_column("noise_std").astype(np.float64),
        losses=np.stack(losses),
    )


def _all_losses(simulation: Simulation) -> FloatArray:
    """(U, K): every user's mean loss on every model, over all its samples."""
    engine, state = simulation.world.engine, simulation.state
    engine.publish(state.models, state.movements)
    return engine.score(state.round, batch=0, gradients=False)[0]


def fit(scenario: Scenario, traces: Sequence[Trace]) -> Calibration:
    """The calibration of these runs: its error from a fit without every fourth run, its constants from all."""
    groups = scenario.groups
    kept_out = [trace for index, trace in enumerate(traces) if index % _HELD_OUT_EVERY == _HELD_OUT_EVERY - 1]
    kept_out = kept_out or [traces[-1]]
    fitted = [trace for trace in traces if trace not in kept_out]
    return Calibration(
        scenario=scenario.name,
        hash=learning_hash(scenario),
        settings=learning_settings(scenario),
        version=metadata.version("covey"),
        weights=traces[0].weights,
        seeds=tuple(trace.seed for trace in traces),
        constants=_constants(traces, groups),
        error=_error(_constants(fitted, groups), fitted, kept_out, groups),
    )


def _by_group(trace: Trace, groups: int) -> FloatArray:
    """(T + 1, G, K): sample-weighted mean loss of every true group on every model."""
    member = (trace.groups == np.arange(groups)[:, None]) * trace.samples.astype(np.float64)
    return np.asarray(np.einsum("gu,tuk->tgk", member, trace.losses) / member.sum(axis=1)[None, :, None])


def _changes(trace: Trace, groups: int) -> FloatArray:
    """Rows (loss before, change, wrong share, missing share, noise) of every group on every model trained."""
    losses = _by_group(trace, groups)
    rounds, shape = len(trace.identities), trace.identities.shape
    wrong, missing, noise, trained = composition(
        np.broadcast_to(trace.groups, shape),
        trace.identities,
        np.broadcast_to(trace.samples, shape),
        trace.served,
        trace.noise_std,
        *losses.shape[1:],
    )
    before = losses[:rounds]
    columns = (before, losses[1:] - before, wrong, missing, noise)
    return np.column_stack([column[trained] for column in columns])


def _constants(traces: Sequence[Trace], groups: int) -> Constants:
    rows = np.concatenate([_changes(trace, groups) for trace in traces])
    if len(rows) < 10:
        raise ScenarioError(
            f"the runs hold only {len(rows)} trained models to learn from, too few to fit; play more runs or rounds"
        )
    before, change, wrong, missing, noise = rows.T
    took_part = wrong < 1.0
    knots = np.unique(np.quantile(before[took_part] if took_part.any() else before, np.linspace(0.0, 1.0, _KNOTS)))
    hats = np.stack([np.interp(before, knots, row) for row in np.eye(len(knots))], axis=1)
    scale = max(float(noise.max()), 1e-300)
    right = 1.0 - wrong
    columns = np.column_stack([
        right[:, None] * hats, wrong, wrong * before, wrong * right, wrong * right * before, missing**2, noise / scale
    ])  # fmt: skip
    # Missing samples and noise can only increase the loss; the other terms may have either sign.
    least = np.concatenate([np.full(columns.shape[1] - 2, -np.inf), np.zeros(2)])
    # Users rarely use a model that their group did not train, but most rows are of that kind.
    weight = np.sqrt(np.where(took_part, 1.0, _WEIGHT_OF_STRANGERS))
    found = lsq_linear(columns * weight[:, None], change * weight, (least, np.inf)).x.tolist()
    own, (other_0, other_1, mixed_0, mixed_1, lacking, noisy) = found[:-6], found[-6:]
    by_group = [_by_group(trace, groups) for trace in traces]
    starts = np.concatenate([losses[0].ravel() for losses in by_group])
    return Constants(
        start=float(starts.mean()),
        start_std=float(starts.std()),
        knots=tuple(knots.tolist()),
        own=tuple(own),
        other=(other_0, other_1),
        mixed=(mixed_0, mixed_1),
        missing=lacking,
        noise=noisy / scale,
        floor=float(min(losses.min() for losses in by_group)),
        ceiling=float(max(losses.max() for losses in by_group)),
        offset_std=float(np.sqrt(np.mean([_offset_variance(trace, groups) for trace in traces]))),
        judgement_std=_judgement_std(traces),
    )


def _judgement_std(traces: Sequence[Trace]) -> float:
    """Standard deviation of the estimation error that matches how often users really announce their best model.

    Found by bisection, with common random numbers for all candidates.
    """
    losses = np.concatenate([trace.losses[1:-1].reshape(-1, trace.losses.shape[2]) for trace in traces])
    announced = np.concatenate([trace.identities[1:].ravel() for trace in traces])
    real = float(np.mean(losses.argmin(axis=1) == announced))
    errors = generator(0, "surrogate").standard_normal((_JUDGEMENTS, *losses.shape))
    low, high = 0.0, float(np.ptp(losses))
    for _ in range(40):
        middle = (low + high) / 2
        right = np.mean((losses + middle * errors).argmin(axis=2) == losses.argmin(axis=1))
        low, high = (middle, high) if right > real else (low, middle)
    return low


def _offset_variance(trace: Trace, groups: int) -> float:
    """Variance over tasks of a user's losses around its group's, a shift common to all tasks taken out."""
    offsets = trace.losses - _by_group(trace, groups)[:, trace.groups]
    return float(offsets.var(axis=2).mean())


def _error(constants: Constants, fitted: Sequence[Trace], kept_out: Sequence[Trace], groups: int) -> Error:
    before, change, wrong, missing, noise = np.concatenate([_changes(trace, groups) for trace in kept_out]).T
    residual = before + change - recursion(constants, before, wrong, missing, noise)
    spread = float(((change - change.mean()) ** 2).sum())
    pairs = [_replay(constants, trace, groups) for trace in kept_out]
    real, predicted = (np.array([pair[side] for pair in pairs]) for side in (0, 1))
    correlation = np.corrcoef(real.sum(axis=1), predicted.sum(axis=1))[0, 1] if len(kept_out) >= 3 else 0.0
    return Error(
        runs_fitted=len(fitted),
        runs_kept_out=len(kept_out),
        one_step_rmse=float(np.sqrt(np.mean(residual**2))),
        one_step_r2=1.0 - float((residual**2).sum()) / spread if spread > 0 else 0.0,
        rollout_rmse=float(np.sqrt(np.mean((predicted - real) ** 2))),
        rollout_correlation=float(np.nan_to_num(correlation)),
    )


def _replay(constants: Constants, trace: Trace, groups: int) -> tuple[FloatArray, FloatArray]:
    """(T,) mean loss of all users on their tasks' models, real and as the surrogate predicts it from the first losses,
    the identities and the served users of the run."""
    losses = _by_group(trace, groups)[:1]
    real, predicted = [], []
    users = np.arange(len(trace.groups))
    for t, identities in enumerate(trace.identities):
        losses = learn(
            constants,
            losses,
            trace.groups[None],
            identities[None],
            trace.samples[None],
            trace.served[None, t],
            trace.noise_std[None, t],
        )
        real.append(np.average(trace.losses[t + 1, users, identities], weights=trace.samples))
        predicted.append(np.average(losses[0, trace.groups, identities], weights=trace.samples))
    return np.array(real), np.array(predicted)
