"""Parts reach every surface: names of installed packages, and `module:attribute` from commands, TOML and Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from importlib import import_module, metadata
from pathlib import Path

import pytest

import covey
from covey import parts
from covey.cli.main import main
from covey.errors import CoveyError, PartWarning, PolicyError, ScenarioError
from covey.parts import NEEDS, PATH_LOSSES, POLICIES, REGISTRIES, Registry, is_reference, refuse_unmet

OWN = '''
import numpy as np
from math import prod
from torch import nn

from covey.data import Dataset
from covey.data.partitions import label_mix


def strongest(observation, rng):
    """Everybody at its strongest station."""
    gains = np.where(observation.eligible, observation.gains.T, 0.0)
    return observation.eligible & (gains.argmax(axis=0) == np.arange(len(gains))[:, None])


def loss(radio):
    return lambda distance_m: 60.0 + 30.0 * np.log10(distance_m)


class Walk:
    def __init__(self, mobility, area_m):
        self.area_m = np.asarray(area_m)

    def start(self, positions_m, rng):
        return np.empty((len(positions_m), 0))

    def move(self, positions_m, memory, duration_s, rng):
        return self.area_m - positions_m, memory


class Flat:
    def __init__(self, radio, min_distance_m, seed):
        self.gain = 1e-9

    def gains(self, users_m, stations_m, round):
        return np.full((len(users_m), len(stations_m)), self.gain)


def loader(data, seed):
    """Ten blobs."""
    y = np.repeat(np.arange(10), 400)
    x = (np.random.default_rng(seed).normal(size=(4000, 6)) + y[:, None] / 5).astype(np.float32)
    return Dataset(name="blobs", x=x, y=y, test=np.arange(4000) % 5 == 0, classes=tuple("abcdefghij"))


def split(dataset, scenario, seed):
    return label_mix(dataset, scenario, seed)


class Net(nn.Module):
    def __init__(self, inputs, classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(inputs, classes))

    def forward(self, x):
        return self.layers(x)


def build(model, sample_shape, classes):
    return Net(prod(sample_shape), classes)
'''
KEYS = {
    "data.name": "loader", "data.partition": "split", "mobility.model": "Walk", "radio.path_loss": "loss",
    "model.name": "build",
}  # fmt: skip
SIZES = ["data.samples_min=20", "data.samples_max=40", "data.test_samples=10", "privacy.noise=off"]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of parts in the current folder, which is not on Python's path."""
    (tmp_path / "own_parts.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_parts", raising=False)
    return "own_parts"


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def test_commands_toml_and_python_take_parts_by_reference_and_workers_too(own: str, tmp_path: Path) -> None:
    overrides = [*SIZES, *(f"{key}={own}:{name}" for key, name in KEYS.items())]
    sets = [word for override in overrides for word in ("--set", override)]
    options = ["--policy", f"{own}:strongest", "--rounds", "2", "--workers", "2", "--out", "run", "-q"]
    assert command("run", "quick", *sets, *options) == 0
    written = covey.load_scenario(tmp_path / "run" / "scenario.toml")
    assert written.model.name == f"{own}:build"
    again = covey.simulate(written, policy=f"{own}:strongest", rounds=2)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["policy"] == f"{own}:strongest"
    assert summary["final"]["loss"] == pytest.approx(again.column("loss")[-1], abs=0)
    assert command("run", "run/scenario.toml", "--policy", f"{own}:strongest", "--rounds", "1", "-q") == 0
    assert (tmp_path / "runs" / f"{written.name}-{own}.strongest-seed0" / "rounds.csv").is_file()


def test_a_channel_of_ones_own_is_that_of_runs_and_of_the_surrogate(own: str) -> None:
    scenario = covey.load_scenario("quick", [f"radio.channel={own}:Flat", "radio.fading=rayleigh"])
    seen = []

    def watched(observation, rng):
        seen.append(observation.gains)
        return observation.eligible & False

    covey.simulate(scenario, policy=watched, rounds=1)
    assert (seen[0] == 1e-9).all()
    from covey.association import get_policy
    from covey.evaluation import compare

    assert compare(scenario, {"greedy": get_policy("greedy")}, [0, 1])["greedy"].served.shape == (2,)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["run", "quick", "--policy", "gredy"], 6, "did you mean 'greedy'"),
        (["run", "quick", "--policy", "dpvb"], 6, "did you mean 'dpvd'"),
        (["run", "quick", "--policy", "no_such_module:any"], 6, "No module named 'no_such_module'"),
        (["run", "quick", "--set", "data.name=digit"], 2, "did you mean 'digits'"),
        (["run", "quick", "--set", "data.partition=rotations"], 2, "did you mean 'rotation'"),
        (["run", "quick", "--set", "radio.channel=path_los"], 2, "did you mean 'path_loss'"),
        (["run", "quick", "--set", "mobility.model=no_such_module:any"], 2, "No module named 'no_such_module'"),
        (["evaluate", "greddy", "quick"], 6, "did you mean 'greedy'"),
        (["data", "inspect", "no_such_module:any"], 3, "No module named 'no_such_module'"),
    ],
)
def test_mistakes_get_one_sentence(
    arguments: list[str], code: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(*arguments) == code
    shown = capsys.readouterr().err
    assert words in shown
    assert len(shown.strip().splitlines()) == 1


def test_installed_packages_offer_parts(tmp_path: Path) -> None:
    """A package is what its dist-info folder says, so that none needs to be installed."""
    site = tmp_path / "site"
    (site / "offering-1.0.dist-info").mkdir(parents=True)
    (site / "offering.py").write_text(f"{OWN}\nfrom covey.identification.raw import Raw\nclass Said(Raw): pass\n")
    (site / "offering-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: offering\nVersion: 1.0\n")
    (site / "offering-1.0.dist-info" / "entry_points.txt").write_text(
        "[covey.parts]\npolicy.mine = offering:strongest\npath_loss.mine = offering:loss\n"
        "announcement.mine = offering:Said\n"
    )
    code = (
        "import sys; from covey.cli.main import main\n"
        "try: main(['run', '--help'])\nexcept SystemExit: pass\n"
        "assert 'torch' not in sys.modules and 'offering' not in sys.modules\n"
        "main(['run', 'quick', '--policy', 'mine', '--set', 'radio.path_loss=mine',"
        " '--set', 'privacy.identity=mine', '--rounds', '2', '--out', 'run', '-q'])"
    )
    path = os.pathsep.join([str(site), *sys.path])
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "exact, mine, or your own as module:attribute" in " ".join(result.stdout.replace("│", " ").split())
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["policy"] == "mine"
    stored = (tmp_path / "run" / "scenario.toml").read_text()
    assert 'path_loss = "mine"' in stored
    assert 'identity = "mine"' in stored


def test_entry_points_that_cannot_be_used_are_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [
        metadata.EntryPoint(name, f"pack{number}:part", "covey.parts")
        for number, name in enumerate(
            ("policies.typo", "nodot", "policy.greedy", "weather.sunny", "policy.mine", "policy.mine", "policy.yours")
        )
    ]
    monkeypatch.setattr(metadata, "entry_points", lambda group: entries)
    parts._entries.cache_clear()
    try:
        with pytest.warns(PartWarning) as warned:
            assert {"mine", "yours"} <= set(POLICIES.names)
        said = [str(warning.message) for warning in warned]
        for words in (
            "'policies.typo = pack0:part' is of no kind that there is; did you mean 'policy.typo'?",
            "'nodot = pack1:part' is not called kind.name",
            "'policy.greedy = pack2:part' has the name of covey's own policy",
            "'weather.sunny = pack3:part' is of no kind that there is; kinds are dataset",
            "'policy.mine = pack5:part' has the name of 'pack4:part' of another package",
        ):
            assert sum(words in sentence and "left out" in sentence for sentence in said) == 1
        assert len(said) == 5
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert "typo" not in POLICIES.names
    finally:
        parts._entries.cache_clear()


def test_every_kind_is_listed_in_the_documentation() -> None:
    page = (Path(__file__).parents[1] / "docs" / "library.md").read_text(encoding="utf-8")
    for registry in REGISTRIES:
        assert f"`{registry.kind}`" in page


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.kind)
def test_every_built_in_part_and_protocol_can_be_imported(registry: Registry) -> None:
    import_module(registry.protocol)
    for name in registry.builtin:
        assert registry.get(name) is not None


def test_keys_of_registries_are_keys_of_the_scenario() -> None:
    scenario = covey.load_scenario("quick")
    for registry in REGISTRIES:
        section, _, key = registry.key.partition(".")
        if key:
            assert getattr(getattr(scenario, section), key) in registry.builtin


def test_names_that_are_references() -> None:
    assert is_reference("a:b")
    assert is_reference("a.b:c.d")
    for name in ("", "a", ":", "a:", ":b", "a b:c", "a:b:c", "1:2"):
        assert not is_reference(name)


def test_references_can_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(POLICIES, "_registered", {"mine": print})
    assert POLICIES.check("mine", own=False) == "mine"
    assert POLICIES.check("extra", also=("extra",)) == "extra"
    with pytest.raises(PolicyError, match=r"'a:b' is custom code.*exact, mine"):
        POLICIES.check("a:b", own=False)
    assert PATH_LOSSES.choices.endswith("inverse_square, or your own as module:attribute")


def test_unmet_needs_are_refused_in_one_sentence() -> None:
    refuse_unmet("clustering.rule", "mine", ["losses"], {"gradients": "there are none"})
    with pytest.raises(
        ScenarioError, match=r"clustering.rule is 'mine', which needs the true groups, but nobody knows"
    ):
        refuse_unmet("clustering.rule", "mine", ["truth"], {"truth": "nobody knows them"})
    with pytest.raises(CoveyError, match=f"needs 'luck'; a part can need {', '.join(NEEDS)}"):
        refuse_unmet("clustering.rule", "mine", ["luck"], {})
