"""The playground says what a real round would do, and why."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.dashboard.conftest import Client

from covey.dashboard.network import SHAPES, _weights
from covey.dashboard.reasons import REASONS
from covey.dashboard.scenario_keys import PLAYGROUND
from covey.data import load_dataset
from covey.data.sources import source_of
from covey.federated import build_model, count_weights
from covey.privacy import epsilon
from covey.scenario import load_scenario
from covey.scenario.schema import Data
from covey.simulation import simulate
from covey.simulation.load_run import read_history

#: Two stations far apart, each with a user beside it, and one user out of reach of both.
FAR = {
    "overrides": [
        "network.area_m=[9000,100]", "network.tasks=1", "network.tasks_per_station=1", "network.blocks=1",
        "data.mixes=[{0=1}]", "training.rounds=10",
    ],
    "stations_m": [[100, 50], [8900, 50]],
    "users_m": [[150, 50], [8850, 50], [4500, 50]],
}  # fmt: skip


def play(client: Client, **question: Any) -> dict[str, Any]:
    answer = client.post("/api/playground", json=question)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def error_of(client: Client, **question: Any) -> str:
    answer = client.post("/api/playground", json=question)
    assert answer.status_code == 422, answer.text
    return str(answer.json()["error"])


def test_the_answer_is_the_first_round_of_a_real_run(client: Client, with_real_run: Path) -> None:
    history = read_history(with_real_run / "real")
    users = history.records[0].users
    answer = play(client, tasks=users.identity.tolist(), policies=["greedy"], rounds=1)
    [greedy] = answer["policies"]
    assert greedy["station"] == users.station.tolist()
    assert greedy["block"] == users.block.tolist()
    np.testing.assert_allclose(greedy["rate_bps"], users.rate_bps)
    np.testing.assert_allclose(greedy["noise_std"], users.noise_std)
    np.testing.assert_allclose(greedy["rho"], users.rho)
    assert answer["samples"] == history.samples.tolist()
    assert answer["stations_m"] == history.stations_m.tolist()
    spent = [epsilon(float(rho), 1e-5) for rho in users.rho]
    np.testing.assert_allclose(greedy["epsilon"], spent)
    assert greedy["served"] == history.records[0].served


def test_every_reference_policy_side_by_side(client: Client) -> None:
    names = ["random", "nearest", "coverage", "greedy", "local_search", "exact"]
    answer = play(client, policies=names, seed=4)
    assert [policy["name"] for policy in answer["policies"]] == names
    samples = {policy["name"]: policy["samples"] for policy in answer["policies"]}
    assert samples["exact"] >= samples["local_search"] >= samples["greedy"] >= samples["coverage"]
    for policy in answer["policies"]:
        assert all(constraint["ok"] for constraint in policy["constraints"])
        for user, station in enumerate(policy["station"]):
            assert (policy["reason"][user] == "") == (station >= 0)
            assert policy["reason"][user] in REASONS
            if station >= 0:
                assert policy["rate_bps"][user] >= answer["min_rate_bps"]
                assert policy["rate_bps"][user] <= answer["links"]["alone_bps"][user][station]
                assert answer["links"]["feasible"][user][station]
                assert policy["epsilon"][user] > 0


def test_epsilon_is_that_of_all_rounds(client: Client) -> None:
    one, many = (play(client, rounds=rounds, policies=["greedy"])["policies"][0] for rounds in (1, 40))
    assert one["rho"] == many["rho"]
    served = int(np.argmax(one["station"]))
    assert many["epsilon"][served] == pytest.approx(epsilon(40 * one["rho"][served], 1e-5))
    off = play(client, overrides=["privacy.noise=off"], policies=["greedy"])["policies"][0]
    assert off["epsilon_max"] == "infinite"
    assert set(off["epsilon"]) == {0.0, "infinite"}


def test_positions_decide_who_can_be_served(client: Client) -> None:
    answer = play(client, **FAR, policies=["greedy"])
    assert answer["links"]["feasible"] == [[True, False], [False, True], [False, False]]
    [greedy] = answer["policies"]
    assert greedy["station"] == [0, 1, -1]
    assert greedy["reason"] == ["", "", "too_far"]
    beside = play(client, **{**FAR, "users_m": [[150, 50], [8850, 50], [160, 50]]}, policies=["greedy"])
    assert sorted(beside["policies"][0]["reason"]) == ["", "", "beyond_blocks"]


def test_reasons(client: Client) -> None:
    alone = {**FAR, "users_m": [[150, 50], [150, 60], [8850, 50]]}
    two_tasks = ["network.tasks=2", "network.task_sets=[[0],[1]]", "data.mixes=[{0=1},{1=1}]"]
    question = {**alone, "overrides": [*FAR["overrides"], *two_tasks], "tasks": [1, 0, 1], "policies": ["coverage"]}
    assert play(client, **question)["policies"][0]["reason"][0] == "too_far"
    roomy = {**alone, "overrides": [*FAR["overrides"], "network.blocks=3"], "policies": ["coverage"]}
    assert "left_out" in play(client, **roomy)["policies"][0]["reason"]
    narrow = [*FAR["overrides"], "network.blocks=3", "radio.downlink_limit_s=1e-9"]
    reasons = play(client, **{**alone, "overrides": narrow, "policies": ["nearest", "coverage"]})
    assert reasons["policies"][0]["reason"] == ["no_broadcast"] * 3
    assert set(reasons["policies"][1]["reason"]) == {"no_broadcast"}


def test_which_constraint_binds(client: Client) -> None:
    def binding(*overrides: str) -> set[str]:
        answer = play(client, overrides=list(overrides), policies=["greedy"])
        return {one["name"] for one in answer["policies"][0]["constraints"] if one["binding"]}

    assert {"noise_cap", "downlink_time"} <= binding()
    assert "noise_floor" not in binding()
    assert "users_per_station" in binding("network.blocks=1")
    assert "downlink_time" not in binding("network.blocks=1", "radio.downlink_limit_s=10")
    # Two users of one task under a floor that only the larger one exceeds on its own.
    pair = {
        **FAR, "overrides": [*FAR["overrides"], "network.blocks=2", "privacy.v_max=12", "privacy.n_min=250"],
        "samples": [60, 90], "users_m": [[150, 50], [150, 60]], "policies": ["greedy"],
    }  # fmt: skip
    floor = play(client, **pair)["policies"][0]["constraints"][-1]
    assert (floor["name"], floor["ok"], floor["binding"]) == ("noise_floor", True, [[0]])
    missed = play(client, overrides=["privacy.v_max=1.5"], policies=["greedy"])["policies"][0]["constraints"]
    assert [one["name"] for one in missed if not one["ok"]] == ["noise_cap"]


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ({"users_m": [[900, 0]] + [[1, 1]] * 11}, "outside the area"),
        ({"users_m": [[1, 1]]}, "more tasks (4) than users (1)"),
        ({"stations_m": [[1, 1]]}, "no station can run task 3"),
        ({"tasks": [0, 1]}, "2 tasks for 12 users"),
        ({"tasks": [9] * 12}, "numbered 0 to 3"),
        ({"samples": [5]}, "1 samples for 12 users"),
        ({"preset": "campus"}, f"at most {PLAYGROUND['users']} users"),
        ({"overrides": ["security.mode=masked"]}, "security.mode"),
        ({"overrides": ["privacy.v_max=0"]}, "greater than 0"),
        ({"overrides": ["model.name=mlp", "model.hidden=[100000]"]}, "radio.model_bits"),
        ({"overrides": ["model.name=unheard"]}, "model.name"),
        ({"overrides": ["radio.path_loss=unheard"]}, "radio.path_loss"),
        ({"overrides": ["radio.user_power_dbm=1e9"]}, "less than or equal to 300"),
        (
            {"overrides": ["radio.downlink_limit_s=1e300", "radio.downlink_rate_bps=1e300"]},
            "less than or equal to 1e+09",
        ),
        ({"overrides": ["data.name=folder", "data.path=nowhere"]}, "there is no"),
        ({"users_m": [[1, 1]] * 61}, "at most 60"),
        ({"users_m": [["a", 1]]}, "number"),
        ({"users_m": []}, "at least 1"),
        ({"policies": ["dpvd"]}, "greedy"),
        ({"seed": -1}, "greater than or equal to 0"),
        ({"rounds": 10**9}, "less than or equal to"),
    ],
)
def test_wrong_questions_are_one_sentence(client: Client, question: dict[str, Any], words: str) -> None:
    sentence = error_of(client, **question)
    assert words in sentence
    assert "\n" not in sentence


def test_numbers_that_overflow_are_one_sentence(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def overflows(*_: object) -> None:
        raise FloatingPointError("overflow encountered")

    monkeypatch.setattr("covey.dashboard.playground._play", overflows)
    assert "cannot be computed with (overflow encountered)" in error_of(client)


def test_the_exact_policy_is_for_small_networks(client: Client) -> None:
    [exact] = play(client, overrides=["network.users=30"], policies=["exact"])["policies"]
    assert "up to 24 users" in exact["error"]


def test_extremes_are_answered_or_refused_but_never_fail(client: Client) -> None:
    for override in (
        "radio.min_rate_bps=1e12", "radio.min_rate_bps=1e-9", "radio.noise_dbm_per_block=-400", "network.blocks=24",
        "network.min_distance_m=1e-9", "training.clip=1e-300", "training.clip=1e300", "privacy.delta=1e-300",
        "privacy.n_min=0", "data.samples_max=1000000000000", "radio.shadowing_db=1e6", "radio.block_bandwidth_hz=1e-9",
        "network.area_m=[1e9,1e9]", "radio.fading=rayleigh", "radio.model_bits=1e-300", "privacy.v_max=1e300",
    ):  # fmt: skip
        answer = client.post("/api/playground", json={"overrides": [override], "policies": ["nearest", "greedy"]})
        assert answer.status_code in (200, 422), override
        assert not {"NaN", "Infinity"} & set(re.findall(r"[A-Za-z]+", answer.text)), override


def test_shapes_of_data_sets_are_those_of_the_data() -> None:
    scenario = load_scenario("quick")
    for name, (shape, classes) in SHAPES.items():
        source = source_of(name)
        if source.find is not None and source.find(None) is None:
            continue  # not on this machine
        dataset = load_dataset(Data(name=name))
        assert (dataset.x.shape[1:], len(dataset.classes)) == (shape, classes)
    data = Data(name="synthetic", features=7, classes=3)
    built = count_weights(build_model(scenario.model, (7,), 3))
    assert _weights(scenario.model, data.model_dump_json()) == built
    assert load_dataset(data).x.shape[1:] == (7,)


def test_a_run_from_the_same_seed_has_the_same_network(client: Client) -> None:
    history = simulate("quick", rounds=1, seed=9)
    answer = play(client, seed=9, policies=[])
    assert answer["tasks"] == history.groups.tolist()
    assert answer["users_m"] == np.stack([history.records[0].users.x_m, history.records[0].users.y_m], 1).tolist()
