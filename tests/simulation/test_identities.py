"""How tasks become known in whole runs, what that costs, and what it may be computed from."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from covey.federated import Upload
from covey.identification.from_release import FromRelease
from covey.identification.noisy_max import NoisyMax
from covey.identification.raw import Raw
from covey.network import Observation
from covey.privacy import Journal, read_journal
from covey.scenario import Scenario, load_scenario
from covey.simulation import History, Simulation, simulate
from covey.simulation.checkpoint import restore_checkpoint, save_checkpoint


def scenario(identity: str, *overrides: str) -> Scenario:
    return load_scenario("quick", [f"privacy.identity={identity}", *overrides])


def nobody(observation: Observation, rng: np.random.Generator) -> np.ndarray:
    """Serves no user, so that announcements are all that is released."""
    return np.zeros((4, 12), bool)


def equal(a: History, b: History) -> bool:
    rows = [[json.dumps(record.scalars()) for record in history.records] for history in (a, b)]
    identities = [history.user_column("identity") for history in (a, b)]
    return rows[0] == rows[1] and np.array_equal(*identities) and np.array_equal(a.models, b.models)


@pytest.mark.parametrize(
    ("every", "within", "rounds_with"),
    [(1, None, [2, 3, 4, 5, 6]), (2, None, [2, 4, 6]), (3, None, [2, 5]), (1, 2, [2, 3]), (2, 3, [2, 4]), (9, 1, [2])],
)
def test_announcements_come_when_asked_for_and_are_charged_each(every: int, within: int | None, rounds_with) -> None:
    overrides = [f"clustering.announce_every={every}", "privacy.identity_rho=0.03"]
    overrides += [] if within is None else [f"clustering.announce_rounds={within}"]
    history = simulate(scenario("noisy_max", *overrides), nobody, rounds=6)
    charged = np.diff(history.user_column("rho_identity"), axis=0, prepend=0.0)
    for record, cost in zip(history.records, charged, strict=True):
        np.testing.assert_allclose(cost, 0.03 if record.round in rounds_with else 0.0, atol=1e-15)
    assert (history.ledger.announcements == len(rounds_with)).all()
    np.testing.assert_allclose(history.ledger.rho, 0.03 * len(rounds_with))
    assert not history.ledger.releases.any()
    identity = history.user_column("identity")
    for number in range(2, 7):
        if number not in rounds_with:
            np.testing.assert_array_equal(identity[number - 1], identity[number - 2])
    assert (identity[rounds_with[0] - 1] != identity[0]).any()


@pytest.mark.parametrize("every", [1, 2])
def test_raw_and_released_tasks_are_kept_between_announcements_too(every: int) -> None:
    for identity in ("raw", "from_release"):
        history = simulate(scenario(identity, f"clustering.announce_every={every}"), rounds=5)
        changed = (np.diff(history.user_column("identity"), axis=0) != 0).any(axis=1)
        assert changed.any()
        if every == 2:  # announcements come in rounds 2 and 4
            assert not changed[[1, 3]].any()


def test_an_announcement_is_charged_on_disk_before_it_is_computed(tmp_path: Path) -> None:
    seen: list[int] = []
    with Simulation(scenario("noisy_max"), nobody, rounds=3, journal=Journal(tmp_path / "charges")) as simulation:
        tell = simulation.world.engine.tell

        def watch(round: int, users: np.ndarray) -> np.ndarray:
            last = read_journal(tmp_path / "charges")[-1]
            assert (last.round, last.kind, last.users) == (round, "identity", tuple(users.tolist()))
            assert last.rho == (0.02,) * len(users)
            seen.append(round)
            return tell(round, users)

        simulation.world.engine.tell = watch
        while not simulation.done:
            simulation.play()
    assert seen == [1, 2]


def test_who_cannot_pay_keeps_its_task_and_is_counted() -> None:
    # Users 2 and 7 cannot pay a single announcement, user 4 exactly one.
    budgets = [50.0] * 12
    budgets[2] = budgets[7] = 0.01
    budgets[4] = 1.0  # rho 0.029
    chosen = scenario("noisy_max", f"privacy.budget_epsilon={budgets}", "privacy.identity_rho=0.02")
    history = simulate(chosen, nobody, rounds=5)
    identity = history.user_column("identity")
    assert (identity[:, [2, 7]] == identity[0, [2, 7]]).all()
    assert (identity[1:, 4] == identity[1, 4]).all()
    assert (np.delete(identity, [2, 4, 7], axis=1)[1:] != identity[0, [0, 1, 3, 5, 6, 8, 9, 10, 11]]).any()
    assert history.ledger.announcements[[0, 2, 4, 7]].tolist() == [4, 0, 1, 0]
    assert history.ledger.refusals[[0, 2, 4, 7]].tolist() == [0, 4, 3, 4]
    assert history.column("refused_releases").tolist() == [0, 2, 3, 3, 3]
    assert not history.ledger.rho[[2, 7]].any()
    assert any("Budgets refused releases of 3 of 12 users" in note for note in history.notes)
    assert (history.ledger.epsilon("zcdp") <= budgets).all()


@pytest.fixture(scope="module")
def noisy() -> History:
    return simulate(scenario("noisy_max"), rounds=5)


@pytest.mark.parametrize("identity", ["noisy_max", "from_release"])
def test_a_resumed_run_ends_like_an_uninterrupted_one(identity: str, noisy: History, tmp_path: Path) -> None:
    whole = noisy if identity == "noisy_max" else simulate(scenario(identity), rounds=5)
    with Simulation(scenario(identity), rounds=5) as simulation:
        for _ in range(2):
            simulation.play()
        save_checkpoint(simulation, tmp_path)
    with Simulation(scenario(identity), rounds=5) as simulation:
        restore_checkpoint(simulation, tmp_path)
        while not simulation.done:
            simulation.play()
        assert equal(simulation.history, whole)
        assert simulation.history.ledger.to_dict() == whole.ledger.to_dict()


def test_epsilon_includes_announcements(noisy: History) -> None:
    np.testing.assert_allclose(noisy.ledger.spent["identity"], 4 * 0.02)
    np.testing.assert_allclose(noisy.records[-1].users.rho, noisy.ledger.spent["gradient"] + 4 * 0.02)
    summary = noisy.summary()["privacy"]
    assert (summary["announcements"], summary["unprotected_announcements"]) == (48, 0)
    assert summary["identities_protected"] is True
    assert noisy.notes[1] == NoisyMax.note


def test_epsilon_of_a_round_holds_for_announcements(noisy: History) -> None:
    assert noisy.records[-1].epsilon_max == pytest.approx(noisy.ledger.epsilon("zcdp").max())


def test_more_noise_finds_the_groups_less_often() -> None:
    accuracy = [
        simulate(scenario("noisy_max", f"privacy.identity_rho={rho}"), rounds=6).column("clustering_accuracy")[1:]
        for rho in (1e-7, 1e3)
    ]
    assert accuracy[0].mean() + 0.1 < accuracy[1].mean()


def test_raw_announcements_are_all_labelled_and_named_first() -> None:
    history = simulate(scenario("raw"), rounds=4)
    assert (history.ledger.unprotected == 3).all()
    assert history.notes[1] == Raw.note
    assert "NOT protected" in history.notes[1]
    assert history.summary()["notes"] == history.notes
    assert history.summary()["privacy"]["identities_protected"] is False
    assert history.summary()["privacy"]["unprotected_announcements"] == 36
    assert not history.ledger.spent["identity"].any()
    assert (simulate(scenario("raw", "clustering.announce_rounds=1"), rounds=4).ledger.unprotected == 1).all()


@pytest.mark.parametrize("rule", ["oracle", "kmeans"])
def test_rules_that_announce_nothing_raw_label_nothing(rule: str) -> None:
    history = simulate(scenario("raw", f"clustering.rule={rule}"), rounds=3)
    assert not history.ledger.unprotected.any()
    assert not any("Identities are NOT protected" in note for note in history.notes)


def served_and_next_tasks(identity: str, *, change: bool) -> tuple[np.ndarray, np.ndarray]:
    """Who was served in the third round, and the tasks of the fourth; with `change`, data changed in between."""
    with Simulation(scenario(identity), rounds=4) as simulation:
        x, y = simulation.data.x.base, simulation.data.y.base  # parts get views that cannot be written

        def meddle(round: int, sent: list[Upload]) -> list[Upload]:
            if change and round == 2:
                x[...] = np.random.default_rng(0).permutation(x)
                y[...] = (y + 3) % 10
            return sent

        object.__setattr__(simulation.world, "transport", meddle)
        for _ in range(3):
            served = simulation.play().users.station >= 0
        return served, simulation.play().users.identity


def test_tasks_from_releases_use_nothing_of_the_data_but_uploads_and_models() -> None:
    (served, changed), (same_served, unchanged) = (
        served_and_next_tasks("from_release", change=change) for change in (True, False)
    )
    assert served.any()
    np.testing.assert_array_equal(served, same_served)
    np.testing.assert_array_equal(changed, unchanged)
    # The change matters to those who look at their data.
    raw = [served_and_next_tasks("raw", change=change)[1] for change in (True, False)]
    assert (raw[0] != raw[1]).any()


def test_tasks_from_releases_change_for_those_who_uploaded_only() -> None:
    moved = 0
    with Simulation(scenario("from_release"), rounds=6) as simulation:
        simulation.world.engine.score = lambda *given, **named: pytest.fail("data were looked at")
        while not simulation.done:
            before = simulation.state.identities.copy()
            record = simulation.play()
            changed = simulation.state.identities != before
            assert not changed[record.users.joined == 0].any()
            moved += changed.sum()
        assert not simulation.state.ledger.spent["identity"].any()
        assert not simulation.state.ledger.unprotected.any()
        assert simulation.history.notes[1] == FromRelease.note
    assert moved > 0


def test_lost_uploads_leave_tasks_from_releases_as_they_are() -> None:
    history = simulate(scenario("from_release"), rounds=3, transport=lambda number, sent: [])
    identity = history.user_column("identity")
    assert (identity == identity[0]).all()
