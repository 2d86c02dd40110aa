"""How a run begins: random models, or one for all until noised uploads tell the groups apart."""

from __future__ import annotations

import numpy as np
import pytest

from covey.errors import ScenarioError
from covey.identification.paths import LARGEST
from covey.identification.start import IN_PLAY, LONGEST, OwnStart, ReleaseStart, Start
from covey.radio import broadcast_times
from covey.scenario import load_scenario
from covey.simulation import History, Simulation, simulate

SEEDS = range(1000, 1005)
NEW = ("clustering.start=release", "clustering.rescue=true")


def play(*overrides: str, seed: int, rounds: int = 6) -> History:
    return simulate(load_scenario("paper_digits", [*NEW, *overrides, f"training.rounds={rounds}"]), seed=seed)


def equal(models: np.ndarray) -> bool:
    return bool((models == models[0]).all())


@pytest.mark.parametrize("overrides", [[], ["network.tasks=8"]], ids=["4 tasks", "8 tasks"])
def test_all_models_are_equal_until_the_start_is_over(overrides: list[str]) -> None:
    for seed in SEEDS:
        with Simulation(load_scenario("paper_digits", [*NEW, *overrides]), seed=seed) as run:
            started = 0
            while run.world.start.under_way(run.state.round, run.state.memory):
                assert equal(run.state.models)
                # One model is sent, once.
                assert run.state.active.sum() == 1
                before = run.state.models
                record = run.play()
                started += 1
                assert record.starting == 1
                assert (run.state.models[0] != before[0]).any()
            assert 1 <= started <= LONGEST
            assert "start.over" in run.state.memory
            assert not equal(run.state.models)
            assert run.play().starting == 0


def test_groups_are_found_on_quick_and_charges_do_not_depend_on_it() -> None:
    for seed in SEEDS:
        history = play(seed=seed)
        assert history.column("clustering_accuracy")[-1] == 1.0
        assert history.records[0].starting == 1
        # Only uploads are charged: what a served user pays depends on its clipping norm and noise alone.
        served = history.user_column("station") >= 0
        noise = history.user_column("noise_std")
        rho = np.where(served, 2 * history.clip**2 / np.where(served, noise, 1.0) ** 2, 0.0).cumsum(axis=0)
        np.testing.assert_allclose(history.user_column("rho"), rho, rtol=1e-9)
        assert not history.user_column("rho_identity").any()


def test_a_found_group_has_a_model_made_from_its_own_uploads() -> None:
    """The model of each part is the mean of what its users uploaded, weighted by samples; others stay as they were."""
    sent: dict[int, np.ndarray] = {}

    def listen(round, uploads):
        if round == 0:
            sent.update({upload.user: upload.weights for upload in uploads})
        return uploads

    with Simulation(load_scenario("paper_digits", NEW), seed=1000, transport=listen) as run:
        record = run.play()
        state, samples = run.state, run.world.samples
        assert "start.over" in state.memory
        found = record.groups_estimate
        total = samples[list(sent)].sum()
        common = sum(samples[user] * sent[user].astype(np.float64) for user in sent) / total
        for task in range(found):
            users = [user for user in sent if state.identities[user] == task]
            mean = sum(samples[user] * sent[user].astype(np.float64) for user in users) / samples[users].sum()
            np.testing.assert_allclose(state.models[task], mean, atol=1e-6)
            np.testing.assert_allclose(state.movements[task], state.models[task] - run.world.first_models[0], atol=1e-6)
        for task in range(found, 4):
            np.testing.assert_allclose(state.models[task], common, atol=1e-6)
            assert not state.movements[task].any()
        # The common model is sent too, once, as the models of the groups are.
        assert found < 4
        assert state.active.sum(axis=0).tolist() == [int(task <= found) for task in range(4)]


@pytest.mark.parametrize("tasks", [4, 8, 2])
def test_users_that_were_not_heard_have_the_common_model(tasks: int) -> None:
    """Their labels were drawn among all models; those of no group are not in play, except for the common one."""
    silent = {1, 4, 6}
    for seed in SEEDS:
        with Simulation(
            load_scenario("paper_digits", [*NEW, f"network.tasks={tasks}"]),
            seed=seed,
            transport=lambda _, uploads: [upload for upload in uploads if upload.user not in silent],
        ) as run:
            while run.world.start.under_way(run.state.round, run.state.memory):
                record = run.play()
            parts = record.groups_estimate
            common = parts if parts < tasks else 0
            assert run.state.identities[sorted(silent)].tolist() == [common] * len(silent)
            np.testing.assert_array_equal(run.state.memory[IN_PLAY], np.arange(tasks) <= parts)
            assert run.state.memory[IN_PLAY][run.state.identities].all()


def test_the_air_after_the_start_counts_the_common_model() -> None:
    with Simulation(load_scenario("paper_digits", [*NEW, "network.tasks=8"]), seed=1000) as run:
        while run.world.start.under_way(run.state.round, run.state.memory):
            parts = run.play().groups_estimate
        one = run.world.model_bits / run.world.scenario.radio.downlink_rate_bps
        assert parts < 8
        assert run.play().downlink_s == pytest.approx((parts + 1) * one)


def test_the_air_of_the_start_is_that_of_one_model() -> None:
    with Simulation(load_scenario("paper_digits", NEW), seed=1000) as run:
        one = broadcast_times(run.state.active, run.world.model_bits, run.world.scenario.radio.downlink_rate_bps)
        assert run.play().downlink_s == pytest.approx(float(one.sum()))
    with Simulation(load_scenario("paper_digits", ["clustering.start=random"]), seed=1000) as run:
        assert run.play().downlink_s == pytest.approx(12 * float(one.sum()))


def test_eight_tasks_for_four_groups_use_four_models() -> None:
    histories = [play("network.tasks=8", seed=seed, rounds=10) for seed in SEEDS]
    used = [8 - len(history.unused_tasks()) for history in histories]
    estimates = [int(np.median(history.column("groups_estimate")[-5:])) for history in histories]
    assert sum(number == 4 for number in used) >= 3
    assert sum(number == 4 for number in estimates) >= 3
    assert np.mean([history.column("clustering_accuracy")[-1] for history in histories]) > 0.9


@pytest.mark.parametrize("start", ["release", "random"])
def test_models_grow_from_two_to_the_number_of_groups(start: str) -> None:
    grow = ["network.tasks=2", "clustering.max_tasks=8", f"clustering.start={start}"]
    right = []
    for seed in SEEDS:
        history = play(*grow, seed=seed, rounds=15)
        assert history.scenario.first_tasks == 2
        assert history.scenario.groups == 4
        right.append(history.column("clustering_accuracy")[-1] == 1.0)
    # Growth takes evidence, and a round or two for each model.
    assert sum(right) >= 3
    alone = play("network.tasks=2", f"clustering.start={start}", seed=1000, rounds=12)
    assert alone.column("clustering_accuracy")[-1] < 0.6


@pytest.mark.parametrize("start", ["release", "random"])
def test_nobody_takes_a_model_that_was_not_sent(start: str) -> None:
    """Models come into play when they are sent, as those of groups, the common one or an offer, and only then."""
    grow = ["network.tasks=2", "clustering.max_tasks=8", f"clustering.start={start}"]
    offers = 0
    for seed in SEEDS:
        with Simulation(load_scenario("paper_digits", [*NEW, *grow]), seed=seed) as run:
            known = set(range(2)) if start == "random" else set()
            if start == "random":
                assert set(np.flatnonzero(run.state.active.any(axis=0))) == known
            for _ in range(10):
                record = run.play()
                assert np.isfinite(run.state.models).all()
                if record.starting:
                    # Nobody has a model of its own before groups are made; then theirs and the common one are sent.
                    known = set(range(record.groups_estimate + 1)) if record.groups_estimate > 0 else set()
                    assert not known or set(np.flatnonzero(run.state.active.any(axis=0))) == known
                    continue
                assert set(record.users.identity) <= known
                if record.offered_task >= 0:
                    known.add(record.offered_task)
                    offers += 1
                    assert run.state.active[:, record.offered_task].any()
    # The start leaves little to be offered.
    assert offers >= (len(SEEDS) if start == "random" else 1)


def test_heavy_noise_ends_the_start_after_three_rounds_with_a_guess() -> None:
    history = play("privacy.v_max=500", "privacy.n_min=500", seed=1000, rounds=5)
    assert [record.starting for record in history.records] == [1, 1, 1, 0, 0]
    assert history.records[LONGEST - 1].groups_confirmed == 0
    assert history.records[LONGEST - 1].groups_estimate == 4
    assert [record.groups_estimate for record in history.records[:2]] == [-1, -1]


def test_nothing_that_arrives_makes_no_groups() -> None:
    scenario = load_scenario("paper_digits", [*NEW, "training.rounds=5"])
    history = simulate(scenario, seed=1000, transport=lambda _, uploads: [])
    assert all(record.starting for record in history.records)
    assert equal(history.models)


@pytest.mark.parametrize("mode", ["blind", "masked"])
def test_a_start_from_uploads_is_refused_where_they_are_not_seen(mode: str) -> None:
    scenario = load_scenario("paper_digits", ["clustering.start=release", f"security.mode={mode}"])
    with pytest.raises(ScenarioError, match=rf"clustering\.start.*release.*security\.mode is '{mode}'") as caught:
        Simulation(scenario)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("rule", ["kmeans", "oracle"])
def test_rules_with_a_start_of_their_own_keep_it(rule: str) -> None:
    own = f"clustering.rule={rule}"
    with Simulation(load_scenario("paper_digits", [own]), seed=0) as run:
        assert type(run.world.start) is OwnStart
        assert run.play().starting == 0
    with pytest.raises(
        ScenarioError, match=rf"'release', but clustering.rule is '{rule}', which has a start of its own"
    ):
        Simulation(load_scenario("paper_digits", [own, "clustering.start=release"]))


def test_the_random_start_is_the_papers() -> None:
    start = Start(load_scenario("paper_digits"))
    first = np.arange(6, dtype=np.float32).reshape(3, 2)
    capable = np.array([[True, False, True], [True, True, False]])
    assert start.models(first) is first
    np.testing.assert_array_equal(start.broadcasts(capable), capable)
    assert not start.under_way(0, {})
    release = ReleaseStart(load_scenario("paper_digits"))
    np.testing.assert_array_equal(release.models(first), [[0, 1]] * 3)
    np.testing.assert_array_equal(release.broadcasts(capable[:, 1:]), [[False, False], [True, False]])


def test_steps_are_added_up_while_they_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are part of every checkpoint; those of the paper's size are kept."""
    assert LARGEST >= 12 * 552_714
    assert 4 * LARGEST <= 1 << 25, "bytes"
    noise = ("privacy.v_max=500", "privacy.n_min=500")
    kept = play(*noise, seed=1000, rounds=LONGEST)
    monkeypatch.setattr("covey.identification.paths.LARGEST", 12 * 650 - 1)
    with Simulation(load_scenario("paper_digits", [*NEW, *noise]), seed=1000) as run:
        for _ in range(LONGEST):
            assert "start.steps" not in run.state.memory
            run.play()
        assert "start.over" in run.state.memory
        assert (run.state.models != kept.models).any(), "made from the last round alone"


def test_a_group_heard_in_one_round_of_three_is_moved_by_its_mean_step_thrice() -> None:
    noise = ("privacy.v_max=500", "privacy.n_min=500")
    heard: dict[int, list[np.ndarray]] = {user: [] for user in range(12)}

    def last_alone(round, uploads):
        came = [upload for upload in uploads if round == LONGEST - 1]
        for upload in came:
            heard[upload.user].append(upload.weights)
        return came

    with Simulation(load_scenario("paper_digits", [*NEW, *noise]), seed=1000, transport=last_alone) as run:
        first = run.state.models[0].astype(np.float64)
        for _ in range(LONGEST):
            run.play()
        assert "start.over" in run.state.memory
        samples, identities = run.world.samples, run.state.identities
        for part in range(4):
            users = [user for user in range(12) if heard[user] and identities[user] == part]
            if users:
                weights = samples[users].astype(np.float64)
                mean = np.average([heard[user][0] - first for user in users], axis=0, weights=weights)
                np.testing.assert_allclose(run.state.models[part], first + LONGEST * mean, atol=1e-5)


@pytest.mark.parametrize("rule", ["kmeans", "oracle", "loss_vectors"])
def test_a_start_that_a_rule_would_ignore_is_refused(rule: str) -> None:
    scenario = load_scenario("paper_digits", [f"clustering.rule={rule}", "clustering.start=release"])
    with pytest.raises(ScenarioError, match=f"clustering.rule is '{rule}', which has a start of its own; put it back"):
        Simulation(scenario)
