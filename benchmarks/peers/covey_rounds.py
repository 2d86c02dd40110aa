"""Learning rounds by covey: each client takes one step over all its samples, with per-sample clipping."""

from __future__ import annotations

import numpy as np
from fedavg import CLASSES, LEARNING_RATE, SAMPLES, SHAPE, client, first_weights, moved
from turns import Turns

from covey.data import UserData
from covey.federated import Engine, aggregate_models, build_model
from covey.privacy import ReplayNoise
from covey.scenario.schema import Model


def users(count: int) -> UserData:
    """The clients' samples as `UserData`; one of each is also a test sample, because covey requires one."""
    held = [client(number) for number in range(count)]
    offsets = np.arange(count + 1) * SAMPLES
    return UserData(
        x=np.concatenate([x for x, _ in held]), y=np.concatenate([y for _, y in held]), offsets=offsets,
        test_x=np.stack([x[0] for x, _ in held]), test_y=np.array([y[0] for _, y in held]),
        test_offsets=np.arange(count + 1),
        groups=np.zeros(count, np.int64), classes=tuple(map(str, range(CLASSES))),
    )  # fmt: skip


def main() -> None:
    turns = Turns()
    count, tasks, noise = turns.work["clients"], turns.work["tasks"], turns.work.get("noise", 0.0)
    models = first_weights(tasks)
    everyone, samples = np.arange(count), np.full(count, SAMPLES)
    clip, std = np.full(count, turns.work["clip"]), np.full(count, noise)
    module = build_model(Model(name="cnn"), SHAPE, CLASSES)
    with Engine(module, users(count), tasks=tasks, workers=2, seed=0, noise=ReplayNoise(0)) as engine:

        def turn() -> float:
            nonlocal models
            engine.publish(models, np.zeros_like(models))
            identities = np.zeros(count, np.int64)
            if tasks > 1:
                losses, _ = engine.score(1, batch=0, gradients=False)
                identities = losses.argmin(axis=1)
            trained = engine.train(1, everyone, identities, clip, std, learning_rate=LEARNING_RATE, batch=0)
            old = models
            models = aggregate_models(trained.uploads, identities, np.zeros(count, np.int64), samples, models, 1)
            return moved(models, old)

        turns.play(turn)


if __name__ == "__main__":
    main()
