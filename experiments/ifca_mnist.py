"""IFCA's experiment on rotated MNIST played by covey: 1,200 machines, four models, ten full-batch steps a round.

    covey data fetch mnist
    python experiments/ifca_mnist.py ifca --minutes 60      # rounds for an hour; the same command goes on
    python experiments/ifca_mnist.py global --minutes 20    # one model for all
    python experiments/ifca_mnist.py local                  # every machine by itself
    python experiments/ifca_mnist.py speed                  # ten steps of a machine, by three ways
    python experiments/ifca_mnist.py page                   # docs/ifca_mnist.md and its picture

The setting is that of the code which comes with Ghosh, Chung, Yin and Ramchandran, "An Efficient Framework for
Clustered Federated Learning" (NeurIPS 2020); the page says where covey differs. A run takes 3 GB of memory. What it
needs to go on is under build/, what it found under results/ifca_mnist/.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ifca_mnist_page import METHODS, draw, read_results, render_page
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from covey import Simulation
from covey.data import Dataset, UserData, load_dataset
from covey.data.turns import turned, turns_of_groups
from covey.errors import ScenarioError
from covey.federated import Engine, build_model, initial_weights
from covey.federated.models import flatten, load_flat
from covey.federated.steps import LocalUpdate, sample_losses
from covey.federated.threads import one_thread, tune_allocator
from covey.federated.training import LocalProblem, Sgd
from covey.files import make_folder, versions, write_atomically
from covey.identification import clustering_accuracy
from covey.parts import LOCAL_TRAININGS
from covey.privacy import build_noise
from covey.report.pictures import png
from covey.scenario import Scenario, load_scenario
from covey.scenario.schema import Data
from covey.seeding import generator
from covey.simulation.checkpoint import CHECKPOINT, restore_checkpoint, save_checkpoint

Weights = NDArray[np.float32]
Row = dict[str, float]

SCENARIO = Path(__file__).with_suffix(".toml")
#: One model: nobody has anything to choose, so that losses are compared once instead of in every round.
ONE_MODEL = (
    "network.tasks=1", "network.tasks_per_station=1", "clustering.rule=loss", "clustering.announce_rounds=1",
)  # fmt: skip
#: Local steps of a round, as the scenario says.
STEPS = 10
#: Rounds between checkpoints.
SAVED_EVERY = 5
#: Steps of the authors' local models, and those to which every tenth machine goes on.
LOCAL_STEPS, LONGER_STEPS, LONGER_SHARE = 100, 1000, 10
#: Machines that train by themselves at once.
_BLOCK = 100


def scenario_of(method: str, *overrides: str) -> Scenario:
    """The scenario of `ifca` or `global`."""
    return load_scenario(str(SCENARIO), (*(ONE_MODEL if method == "global" else ()), *overrides))


@cache
def mnist() -> Dataset:
    """MNIST, read once."""
    return load_dataset(Data(name="mnist"))


def deal(dataset: Dataset, scenario: Scenario, seed: int) -> UserData:
    """What the machines hold: each group all training images, in an order of its own and turned, in equal parts.

    Pixels are in 0..1. The test images of a group are dealt to its machines in the order of the files, for covey's own
    record of a run; `Judges` use all of them. Groups have equally many machines, and follow each other.
    """
    groups, users = scenario.groups, scenario.network.users
    turns, rows, held_out = turns_of_groups(scenario), np.flatnonzero(~dataset.test), np.flatnonzero(dataset.test)
    machines = users // groups
    if users % groups or len(rows) % machines:
        raise ScenarioError(
            f"{users} machines cannot share {len(rows)} images in {groups} groups equally; set network.users so that"
            " groups have equally many and images are divided without rest"
        )
    x = np.empty((groups * len(rows), *dataset.shape), np.float32)
    test_x = np.empty((groups * len(held_out), *dataset.shape), np.float32)
    y, test_y = np.empty(len(x), np.int64), np.tile(dataset.y[held_out], groups)
    none = np.zeros(1, np.float32)
    for group, degrees in enumerate(turns):
        mixed = rows[generator(seed, "partition", user=group).permutation(len(rows))]
        own, judged = (slice(group * len(part), (group + 1) * len(part)) for part in (rows, held_out))
        x[own], y[own] = turned(dataset.x[mixed], degrees, none), dataset.y[mixed]
        test_x[judged] = turned(dataset.x[held_out], degrees, none)
    x /= np.float32(255)
    test_x /= np.float32(255)
    sizes = [len(part) for part in np.array_split(held_out, machines)] * groups
    offsets = np.arange(users + 1, dtype=np.int64) * (len(rows) // machines)
    test_offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    members = np.arange(users, dtype=np.int64) // machines
    return UserData(x, y, offsets, test_x, test_y, test_offsets, members, dataset.classes)


@dataclass(frozen=True)
class Judged:
    """Accuracy on all test images with the chosen models, and how many test machines chose their group's model."""

    accuracy: float
    right: float
    used: int


class Judges:
    """Test machines: each holds as many test images as a training machine, and takes the model of smallest loss."""

    def __init__(self, data: UserData, scenario: Scenario) -> None:
        self.module = build_model(scenario.model, data.shape, len(data.classes))
        self.x, self.y = torch.from_numpy(data.test_x), torch.from_numpy(data.test_y)
        groups = scenario.groups
        per_group = max(1, len(self.y) // groups // int(data.samples[0]))
        parts = np.array_split(np.arange(len(self.y) // groups), per_group)
        self.machine = np.concatenate([np.repeat(np.arange(per_group), [len(p) for p in parts])] * groups)
        self.machine += np.repeat(np.arange(groups), len(self.y) // groups) * per_group
        self.groups = np.repeat(np.arange(groups), per_group)

    def judge(self, models: Weights) -> Judged:
        """What the test machines make of models (K, D)."""
        losses: list[NDArray[Any]] = []
        right: list[NDArray[Any]] = []
        with one_thread():
            for weights in models:
                load_flat(self.module, weights)
                found = sample_losses(self.module, self.x, self.y)
                for sums, values in zip((losses, right), found, strict=True):
                    sums.append(np.bincount(self.machine, weights=values))
        # Each machine compares sums over the same images, which does as well as means.
        chosen = np.argmin(losses, axis=0)
        accuracy = np.take_along_axis(np.array(right), chosen[None], axis=0).sum() / len(self.y)
        return Judged(float(accuracy), clustering_accuracy(chosen, self.groups), len(np.unique(chosen)))


def play(
    method: str, dataset: Dataset, scenario: Scenario, seed: int, *, work: Path, out: Path, seconds: float
) -> list[Row]:
    """Rounds until the time is over or all are played, from where the last call stopped; a row for each, and for 0."""
    data = deal(dataset, scenario, seed)
    judges, folder = Judges(data, scenario), work / f"{method}-seed{seed}"
    make_folder(folder)
    make_folder(out)
    path, begun = out / f"{method}-seed{seed}.json", time.perf_counter()
    with Simulation(scenario, "greedy", seed=seed, data=data) as simulation:
        if (folder / CHECKPOINT).exists():
            restore_checkpoint(simulation, folder)
            rows = [Row(row) for row in json.loads(path.read_text())["rows"] if row["round"] <= simulation.state.round]
        else:
            rows = [_row(0, judges.judge(simulation.state.models), simulation.history.start, 0.0)]
        while not simulation.done and time.perf_counter() - begun < seconds:
            rows += [_play_round(simulation, judges)]
            over = simulation.done or time.perf_counter() - begun >= seconds
            if over or simulation.state.round % SAVED_EVERY == 0:
                # The rows first: those beyond the checkpoint are left out when a run goes on.
                _write(path, method, seed, rows=rows)
                save_checkpoint(simulation, folder)
                last = rows[-1]
                print(f"{method} round {last['round']:.0f}: accuracy {last['accuracy']:.4f}", flush=True)
    return rows


def _play_round(simulation: Simulation, judges: Judges) -> Row:
    started, busy = time.perf_counter(), time.process_time()
    record = simulation.play()
    played, busy = time.perf_counter() - started, time.process_time() - busy
    left_out = int((record.users.joined == 0).sum())
    if left_out or record.clipped_fraction > 0:
        raise ScenarioError(f"{left_out} machines were not served, {record.clipped_fraction:.0%} of gradients clipped")
    measured: dict[str, Any] = {
        "accuracy": record.accuracy,
        "loss": record.loss,
        "clustering_accuracy": record.clustering_accuracy,
    }
    measured |= {"models_used": len(np.unique(record.users.identity)), "processor_seconds": round(busy, 2)}
    return _row(record.round, judges.judge(simulation.state.models), measured, played)


def _row(number: int, judged: Judged, measured: dict[str, Any], seconds: float) -> Row:
    """A line of the results; what is not known before the first round is left out."""
    row: Row = {"round": number, "accuracy": judged.accuracy, "test_machines_right": judged.right}
    row |= {"test_models_used": judged.used, "own_accuracy": float(measured["accuracy"])}
    row |= {"loss": float(measured["loss"]), "seconds": round(seconds, 2)}
    later = ("clustering_accuracy", "models_used", "processor_seconds")
    return row | {name: measured[name] for name in later if name in measured}


def alone(dataset: Dataset, scenario: Scenario, seed: int, *, out: Path) -> None:
    """Models that machines train by themselves, each judged on all test images of its group.

    All machines take `LOCAL_STEPS` steps, every tenth goes on to `LONGER_STEPS`; finished machines are not trained
    again.
    """
    data, path = deal(dataset, scenario, seed), out / f"local-seed{seed}.json"
    make_folder(out)
    done: dict[str, list[float]] = json.loads(path.read_text())["machines"] if path.exists() else {}
    module = build_model(scenario.model, data.shape, len(data.classes))
    models = initial_weights(module, data.users, seed)
    for machines in _blocks(data.users):
        begun, some = time.perf_counter(), [user for user in machines if str(user) not in done]
        found = dict(zip(some, _train_alone(data, scenario, models, some, seed), strict=True))
        if not found:
            continue
        done |= {str(user): accuracy for user, accuracy in found.items()}
        _write(path, "local", seed, steps=LOCAL_STEPS, machines=done)
        print(f"local: {len(done)} of {data.users}, {time.perf_counter() - begun:.0f} s", flush=True)


def _blocks(users: int) -> Iterator[list[int]]:
    """Those of the longer training first, so that what is left when it is stopped is a part of the shorter one."""
    longer = list(range(0, users, LONGER_SHARE))
    for group in (longer, [user for user in range(users) if user % LONGER_SHARE]):
        yield from (group[begin : begin + _BLOCK] for begin in range(0, len(group), _BLOCK))


def _train_alone(data: UserData, scenario: Scenario, models: Weights, some: list[int], seed: int) -> list[list[float]]:
    """Accuracy of each of some machines after every `LOCAL_STEPS` steps."""
    if not some:
        return []
    own = UserData.from_users(
        [(data.x[rows], data.y[rows]) for rows in _rows(data.offsets, some)],
        test=[(data.test_x[rows], data.test_y[rows]) for rows in _rows(data.test_offsets, some)],
        groups=data.groups[some], classes=data.classes,
    )  # fmt: skip
    training = scenario.training.model_copy(update={"steps": LOCAL_STEPS})
    scenario = scenario.model_copy(update={"training": training})
    module, everybody = build_model(scenario.model, data.shape, len(data.classes)), np.arange(len(some))
    found: list[list[float]] = [[] for _ in some]
    with Engine(
        module, own, tasks=len(some), seed=seed, noise=build_noise("off", seed),
        training=LOCAL_TRAININGS.build(training.local, scenario),
    ) as engine:  # fmt: skip
        now = models[some]
        times = LONGER_STEPS // LOCAL_STEPS if all(user % LONGER_SHARE == 0 for user in some) else 1
        for number in range(times):
            engine.publish(now, np.zeros_like(now))
            clip, silent = np.full(len(some), training.clip), np.zeros(len(some))
            now = engine.train(
                number, everybody, everybody, clip, silent, learning_rate=training.learning_rate, batch=0
            ).uploads
            for values, weights, group in zip(found, now, own.groups, strict=True):
                values.append(_group_accuracy(module, weights, data, int(group)))
    return found


class _SingleSteps(Sgd):
    """`sgd` without the way that takes all steps at once."""

    def _full_batch(self, problem: LocalProblem, start: Tensor, count: int, clip: float) -> None:
        return None


def measure_speed(dataset: Dataset, scenario: Scenario, *, out: Path, machines: int = 60) -> None:
    """Processor time of one machine's update by each way, taken in turns, and how far their weights are apart."""
    data, module = deal(dataset, scenario, 0), build_model(scenario.model, dataset.shape, len(dataset.classes))
    start = initial_weights(module, 1, 0)[0]
    ways = {"plain": _plain_update, "single": _SingleSteps(scenario).run, "together": Sgd(scenario).run}
    found: dict[str, list[Weights]] = {way: [] for way in ways}
    times: dict[str, list[float]] = {way: [] for way in ways}
    with one_thread():
        for user, rows in enumerate(_rows(data.offsets, list(range(0, data.users, data.users // machines)))):
            x, y = torch.from_numpy(data.x[rows]), torch.from_numpy(data.y[rows])
            problem = LocalProblem(
                module, start, scenario.training.clip, 0.0, scenario.training.learning_rate, len(y), len(y),
                next_batch=partial(_copies, x, y), poisson_batch=_never, normals=_never,
            )  # fmt: skip
            for way, update in ways.items():
                begun = time.process_time()
                weights = update(problem).weights
                if user:  # the first one chooses its strategy
                    times[way].append(time.process_time() - begun)
                found[way].append(weights)
    plain, single, together = (np.array(found[way]) for way in ("plain", "single", "together"))
    content = {
        "machines": len(times["plain"]),
        "milliseconds": {way: round(1e3 * float(np.median(values)), 2) for way, values in times.items()},
        "difference": float(np.abs(single - together).max()),
        "difference_plain": float(np.abs(single - plain).max()),
        "moved": float(np.abs(single - start).max()),
    }
    make_folder(out)
    write_atomically(out / "speed.json", json.dumps(content).encode() + b"\n")


def _copies(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.clone(), y.clone()


def _never(*_: Any) -> Any:
    raise AssertionError("nothing is drawn here")


def _plain_update(problem: LocalProblem) -> LocalUpdate:
    """What a plain loop makes of it."""
    module, (x, y) = problem.module, problem.next_batch()
    load_flat(module, problem.weights)
    parameters = list(module.parameters())
    for _ in range(STEPS):
        gradients = torch.autograd.grad(functional.cross_entropy(module(x), y), parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(gradient, alpha=problem.learning_rate)
    return LocalUpdate(flatten(module), 0.0, 0.0, 0)


def _rows(offsets: NDArray[np.int64], some: list[int]) -> list[slice]:
    return [slice(int(offsets[user]), int(offsets[user + 1])) for user in some]


def _group_accuracy(module: torch.nn.Module, weights: Weights, data: UserData, group: int) -> float:
    """Accuracy of a model on all test images of a group."""
    count = len(data.test_y) // (int(data.groups.max()) + 1)
    rows = slice(group * count, (group + 1) * count)
    load_flat(module, weights)
    with one_thread():
        right = sample_losses(module, torch.from_numpy(data.test_x[rows]), torch.from_numpy(data.test_y[rows]))[1]
    return float(right.mean())


def _write(path: Path, method: str, seed: int, **found: Any) -> None:
    content = {"method": method, "seed": seed, "versions": versions()} | found
    write_atomically(path, json.dumps(content, indent=None).replace('{"round"', '\n{"round"').encode() + b"\n")


def main() -> None:
    """Read the arguments and do what they ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=(*METHODS, "speed", "page"))
    parser.add_argument("--seed", type=int, default=0, help="of data and first weights")
    parser.add_argument("--minutes", type=float, default=60.0, help="time for rounds; the last one is finished")
    parser.add_argument("--out", type=Path, default=Path("results/ifca_mnist"), help="folder of the results")
    parser.add_argument("--work", type=Path, default=Path("build/ifca_mnist"), help="folder of the checkpoints")
    options = parser.parse_args()
    if options.what == "page":
        found = read_results(options.out)
        write_atomically(Path("docs/images/ifca_mnist.png"), png(draw(found)))
        write_atomically(Path("docs/ifca_mnist.md"), render_page(options.out).encode())
        return
    tune_allocator()
    scenario = scenario_of(options.what)
    if options.what == "speed":
        measure_speed(mnist(), scenario, out=options.out)
    elif options.what == "local":
        alone(mnist(), scenario, options.seed, out=options.out)
    else:
        play(
            options.what, mnist(), scenario, options.seed, work=options.work, out=options.out,
            seconds=60 * options.minutes,
        )  # fmt: skip


if __name__ == "__main__":
    main()
