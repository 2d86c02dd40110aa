from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.federated.users import Noise, Own, Users, draw_users
from tests.processes import group_alive, started, until
from torch import nn

from covey.errors import CoveyError, ScenarioError
from covey.federated import Engine, build_model, evaluate, initial_weights, noised_step, task_scores
from covey.scenario.schema import Model
from covey.seeding import generator

SHAPE = (1, 6, 6)
SIZES = [30, 7, 30, 30, 1, 90, 12, 30, 30]
TASKS = 3


def module() -> nn.Module:
    return build_model(Model(name="cnn", channels=(3, 4)), SHAPE, 4)


def start(workers: int) -> Engine:
    return Engine(module(), draw_users(SIZES, SHAPE, 4), tasks=TASKS, workers=workers, seed=1, noise=Noise(3))


def models() -> tuple[np.ndarray, np.ndarray]:
    weights = initial_weights(module(), TASKS, seed=4)
    movements = np.random.default_rng(0).standard_normal(weights.shape).astype(np.float32)
    movements[2] = 0
    return weights, movements


def everything(engine: Engine) -> dict[str, np.ndarray]:
    """All that an engine can tell, by name."""
    weights, movements = models()
    engine.publish(weights, movements)
    found: dict[str, Any] = {}
    for batch in (0, 12):
        for gradients in (True, False):
            losses, similarity = engine.score(2, batch=batch, gradients=gradients)
            found |= {f"losses {batch} {gradients}": losses, f"similarity {batch} {gradients}": similarity}
    users = np.array([8, 5, 0, 4])
    for name, batch, base in (("all", 0, None), ("some", 8, None), ("base", 0, weights[1])):
        result = engine.train(
            3,
            users,
            users % TASKS if base is None else None,
            np.array([0.5, 1.0, math.inf, 0.01]),
            np.array([0.0, 1.0, 0.3, 2.0]),
            learning_rate=0.1,
            batch=batch,
            base=base,
        )
        found |= {f"{name} {key}": value for key, value in vars(result).items()}
    found |= vars(engine.evaluate(np.arange(len(SIZES)) % TASKS))
    return found


@pytest.fixture(scope="module")
def alone() -> Iterator[Engine]:
    with start(1) as engine:
        yield engine


@pytest.fixture(scope="module")
def pair() -> Iterator[Engine]:
    with start(2) as engine:
        yield engine


def test_scores_are_those_of_every_users_own_batch(alone: Engine) -> None:
    weights, movements = models()
    alone.publish(weights, movements)
    users = draw_users(SIZES, SHAPE, 4)
    for batch in (0, 12):
        losses, similarity = alone.score(2, batch=batch, gradients=True)
        assert losses.shape == similarity.shape == (len(SIZES), TASKS)
        for user, size in enumerate(SIZES):
            rows = slice(users.offsets[user], users.offsets[user + 1])
            x, y = torch.from_numpy(users.x[rows]), torch.from_numpy(users.y[rows])
            if 0 < batch < size:
                chosen = generator(1, "identify_batch", user=user, round=2).permutation(size)[:batch]
                x, y = x[chosen], y[chosen]
            wanted = task_scores(module(), weights, movements, x, y, gradients=True)
            np.testing.assert_allclose(losses[user], wanted[0], rtol=1e-5)
            np.testing.assert_allclose(similarity[user], wanted[1], rtol=1e-3, atol=1e-5)
    assert not similarity[:, 2].any()


def test_training_steps_every_user_from_its_task_with_its_own_noise(alone: Engine) -> None:
    weights, movements = models()
    alone.publish(weights, movements)
    users = draw_users(SIZES, SHAPE, 4)
    chosen, clip, std = np.array([5, 1]), np.array([0.5, 0.2]), np.array([1.5, 0.0])
    result = alone.train(7, chosen, np.array([2, 0]), clip, std, learning_rate=0.1, batch=0)
    for row, (user, task) in enumerate(((5, 2), (1, 0))):
        rows = slice(users.offsets[user], users.offsets[user + 1])
        noise = std[row] * Noise(3)(user, 7, "noise", weights.shape[1]) if std[row] else None
        wanted = noised_step(
            module(),
            weights[task],
            torch.from_numpy(users.x[rows]),
            torch.from_numpy(users.y[rows]),
            clip=clip[row],
            noise=noise,
            learning_rate=0.1,
        )
        np.testing.assert_allclose(result.uploads[row], wanted.weights, rtol=1e-5, atol=1e-7)
        assert result.mean_norm[row] == pytest.approx(wanted.mean_norm, rel=1e-5)
        assert result.clipped_fraction[row] == wanted.clipped_fraction
    assert result.rejected.tolist() == [0, 0]


def test_no_noise_is_drawn_where_its_deviation_is_zero(alone: Engine) -> None:
    alone.publish(*models())
    one, many = np.array([1]), np.array([1, 2])
    alone.train(0, one, one, np.ones(1), np.zeros(1), learning_rate=0.1, batch=0, purpose="fail")
    with pytest.raises(ValueError, match="no noise for user 1"):
        alone.train(0, many, many, np.ones(2), np.ones(2), learning_rate=0.1, batch=0, purpose="fail")


def test_evaluation_covers_all_samples_of_each_user(alone: Engine) -> None:
    weights, movements = models()
    alone.publish(weights, movements)
    users = draw_users(SIZES, SHAPE, 4)
    tasks = np.array([0, 1, 2, 2, 1, 0, 0, 0, 1])
    found = alone.evaluate(tasks)
    for user, task in enumerate(tasks):
        for x, y, offsets, loss, correct in (
            (users.x, users.y, users.offsets, found.train_loss_sum, found.train_correct),
            (users.test_x, users.test_y, users.test_offsets, found.test_loss_sum, found.test_correct),
        ):
            rows = slice(offsets[user], offsets[user + 1])
            wanted = evaluate(module(), weights[task], torch.from_numpy(x[rows]), torch.from_numpy(y[rows]))
            assert loss[user] == pytest.approx(wanted[0], rel=1e-5)
            assert correct[user] == wanted[1]


def test_results_are_the_same_bits_at_any_number_of_workers(alone: Engine, pair: Engine) -> None:
    wanted = everything(alone)
    with start(3) as three:
        for found in (everything(pair), everything(three), everything(alone)):
            assert found.keys() == wanted.keys()
            for name, value in wanted.items():
                assert value.tobytes() == found[name].tobytes(), name
                assert (value.dtype, value.shape) == (found[name].dtype, found[name].shape)


def test_uploads_of_one_round_survive_the_next(pair: Engine) -> None:
    pair.publish(*models())
    first = pair.train(0, np.array([3]), np.array([1]), np.ones(1), np.ones(1), learning_rate=0.1, batch=0).uploads
    kept = first.copy()
    everyone = np.arange(len(SIZES))
    pair.train(1, everyone, everyone % TASKS, np.ones(9), np.ones(9), learning_rate=0.1, batch=0)
    assert np.array_equal(first, kept)


def test_training_nobody_gives_empty_arrays(alone: Engine, pair: Engine) -> None:
    nobody, nothing = np.zeros(0, np.int64), np.zeros(0)
    for engine in (alone, pair):
        result = engine.train(0, nobody, nobody, nothing, nothing, learning_rate=0.1, batch=0)
        assert result.uploads.shape == (0, engine.weights)
        assert len(result.mean_norm) == len(result.rejected) == 0


def test_an_error_in_a_worker_comes_back_and_the_work_goes_on(pair: Engine) -> None:
    pair.publish(*models())
    users = np.arange(6)
    with pytest.raises(ValueError, match="no noise for user 1") as caught:
        pair.train(0, users, users % TASKS, np.ones(6), np.ones(6), learning_rate=0.1, batch=0, purpose="fail")
    assert "worker process" in caught.value.__notes__[0]
    assert pair.evaluate(np.zeros(9, np.int64)).train_correct.shape == (9,)


def test_a_worker_that_dies_is_reported(pair: Engine) -> None:
    users = np.arange(4)
    pair.publish(*models())
    with pytest.raises(CoveyError, match=r"worker process \d was ended by SIGKILL.*memory"):
        pair.train(0, users, users % TASKS, np.ones(4), np.ones(4), learning_rate=0.1, batch=0, purpose="die")
    with pytest.raises(ValueError, match="closed"):
        pair.score(0, batch=0, gradients=False)


SCRIPT = """
import sys
import numpy as np
from covey.federated import Engine, initial_weights
from tests.federated.users import Noise, Own, draw_users

if __name__ == "__main__":
    try:
        with Engine(Own(), draw_users([40, 40], (16,), 3), tasks=1, workers=2, seed=0, noise=Noise()) as engine:
            weights = initial_weights(Own(), 1, 0)
            engine.publish(weights, weights)
            print(*(block.handle.name for block in engine._resources._blocks), flush=True)
            if sys.argv[1] == "end":
                engine.score(0, batch=0, gradients=True)
                sys.exit(0)
            while True:
                engine.score(0, batch=0, gradients=True)
                print("scored", flush=True)
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
def test_ctrl_c_ends_everything_quietly(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(SCRIPT)
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    with started([sys.executable, script, "interrupt"], env=environment) as process:
        names = process.line().split()
        assert process.line(1) == "scored"
        os.killpg(process.pid, signal.SIGINT)
        assert process.exit_code() == 130
        assert process.stderr == ""
        assert names
        assert not any(Path("/dev/shm", name).exists() for name in names)
        until(lambda: not group_alive(process.pid))


def test_a_module_that_cannot_be_sent_is_refused_with_advice() -> None:
    class Local(Own):
        pass

    users = draw_users([5, 5], (16,), 3)
    with pytest.raises(ScenarioError, match="1 worker"):
        Engine(Local(), users, tasks=1, workers=2, seed=0, noise=Noise())
    with Engine(Local(), users, tasks=1, workers=1, seed=0, noise=Noise()) as engine:
        weights = initial_weights(Local(), 1, 0)
        engine.publish(weights, weights)
        assert np.isfinite(engine.score(0, batch=0, gradients=True)[0]).all()


def test_too_little_shared_memory_is_said_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covey.federated.shared.shutil.disk_usage", lambda folder: type("Usage", (), {"free": 1000}))
    with pytest.raises(CoveyError, match="shm-size"):
        start(2)


def test_the_callers_threads_are_restored(alone: Engine) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        alone.publish(*models())
        alone.score(0, batch=0, gradients=False)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_data_that_cannot_be_written_are_fine(recwarn: pytest.WarningsRecorder) -> None:
    users = draw_users(SIZES, SHAPE, 4)
    for array in vars(users).values():
        array.flags.writeable = False
    with Engine(module(), users, tasks=TASKS, seed=1, noise=Noise(3)) as engine:
        weights, movements = models()
        weights.flags.writeable = False
        engine.publish(weights, movements)
        assert np.isfinite(engine.score(0, batch=0, gradients=True)[0]).all()
    assert not recwarn.list


def test_a_closed_engine_says_so_and_can_be_closed_again() -> None:
    engine = start(1)
    engine.close()
    engine.close()
    with pytest.raises(ValueError, match="closed"):
        engine.publish(*models())
    with pytest.raises(ValueError, match="closed"):
        engine.evaluate(np.zeros(9, np.int64))


def test_wrong_arguments_are_refused(alone: Engine) -> None:
    weights, _ = models()
    one = np.array([0])
    with pytest.raises(ValueError, match=r"movements have shape"):
        alone.publish(weights, weights[:2])
    with pytest.raises(ValueError, match="0 to 8"):
        alone.train(0, np.array([9]), one, np.ones(1), np.ones(1), learning_rate=0.1, batch=0)
    with pytest.raises(ValueError, match="0 to 2"):
        alone.train(0, one, np.array([3]), np.ones(1), np.ones(1), learning_rate=0.1, batch=0)
    with pytest.raises(ValueError, match="either tasks or base"):
        alone.train(0, one, None, np.ones(1), np.ones(1), learning_rate=0.1, batch=0)
    with pytest.raises(ValueError, match="clip has shape"):
        alone.train(0, one, one, np.ones(2), np.ones(1), learning_rate=0.1, batch=0)
    with pytest.raises(ValueError, match="base has shape"):
        alone.train(0, one, None, np.ones(1), np.ones(1), learning_rate=0.1, batch=0, base=weights)
    with pytest.raises(ValueError, match="9 users"):
        alone.evaluate(one)


def test_wrong_modules_and_worker_numbers_are_refused() -> None:
    users: Users = draw_users([5], (16,), 3)
    with pytest.raises(ScenarioError, match="workers is 0"):
        Engine(Own(), users, tasks=1, workers=0, seed=0, noise=Noise())
    with pytest.raises(ScenarioError, match="BatchNorm1d"):
        Engine(nn.Sequential(nn.Linear(16, 3), nn.BatchNorm1d(3)), users, tasks=1, seed=0, noise=Noise())
    with pytest.raises(ScenarioError, match="float32"):
        Engine(Own().double(), users, tasks=1, seed=0, noise=Noise())
