"""A deployed run is the simulated one: same models, same identities, same charges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.deploy.near import NearCourier, deployed, make_devices, run_folder, small

import covey


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["privacy.identity=noisy_max"],
        ["privacy.identity=from_release"],
        ["clustering.rule=loss_vectors"],
        ["clustering.rule=loss_vectors", "privacy.identity=noisy_losses"],
        ["clustering.rule=loss_vectors", "privacy.identity=noisy_contrasts"],
        ["clustering.rule=kmeans"],
        ["clustering.rule=loss", "training.batch=20", "clustering.batch=16"],
        [
            "training.steps=3",
            "training.batch=20",
            "training.sampling=poisson",
            "training.schedule=cosine",
            "privacy.adjacency=add_remove",
        ],
        ["privacy.unit=device", "training.epochs=1", "training.batch=20", "training.optimizer=adam"],
        ["privacy.unit=device", "training.steps=3", "training.server=adam", "security.mode=masked"],
        ["training.personal=mr_mtl"],
        ["training.personal=mr_mtl", "privacy.unit=device", "training.epochs=1", "training.batch=20"],
        ["training.personal=mr_mtl", "training.steps=3", "training.batch=20", "security.mode=masked"],
        ["training.loss=focal", "privacy.identity=noisy_max"],
        ["training.loss=examples.parts.squared_error:squared_error"],
        ["privacy.noise=off"],
        ["security.mode=masked"],
        ["security.mode=masked", "privacy.identity=noisy_max"],
        ["network.tasks=1"],
        ["network.tasks=4"],
    ],
    ids=lambda given: " ".join(given) or "plain",
)
def test_devices_train_the_models_of_the_simulator(tmp_path: Path, overrides: list[str]) -> None:
    scenario = small(*overrides)
    devices = make_devices(scenario, 3, tmp_path / "site", metrics=True)
    folder = run_folder(scenario, tmp_path / "run", seed=3, groups=str(tmp_path / "site" / "server" / "groups.csv"))
    found = deployed(NearCourier(devices), folder).history
    expected = covey.simulate(scenario, rounds=4, seed=3)
    np.testing.assert_allclose(found.models, expected.models, atol=1e-6)
    np.testing.assert_allclose(found.column("loss"), expected.column("loss"), rtol=1e-6)
    np.testing.assert_array_equal(found.user_column("station"), expected.user_column("station"))
    np.testing.assert_array_equal(found.ledger.rho, expected.ledger.rho)
    own = [device.state.ledger.rho[0] for device in devices.values()]
    np.testing.assert_allclose(own, expected.ledger.rho, rtol=1e-12)
    if scenario.security.mode == "none":
        np.testing.assert_array_equal(found.models, expected.models)
        np.testing.assert_array_equal(found.user_column("identity"), expected.user_column("identity"))
        np.testing.assert_array_equal(found.column("clustering_accuracy"), expected.column("clustering_accuracy"))
        np.testing.assert_allclose(found.column("group_loss"), expected.column("group_loss"), rtol=1e-6)
        assert found.summary()["groups"] == expected.summary()["groups"]
