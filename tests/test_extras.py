"""Where an extra is missing: one sentence with the command that installs it, and everything else goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from covey.agents.board import Board
from covey.errors import MissingExtraError
from covey.extras import EXTRAS, has_extra, require_extra

#: Runs the command line where the modules named first cannot be imported.
WITHOUT = """
import importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Missing())
from covey.cli.main import main
main(sys.argv[2:])
"""


def covey_without(modules: tuple[str, ...], *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT, ",".join(modules), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    ("extra", "arguments"),
    [
        ("dashboard", ("dashboard", "--no-open", "--port", 0)),
        ("masks", ("run", "quick", "--security", "masked", "--rounds", 1, "--out", "OUT")),
        ("masks", ("deploy", "certificates", "--users", 1, "--out", "OUT")),
        ("flower", ("deploy", "demo", "--out", "OUT")),
        ("ray", ("figures", "2", "--ray", "local", "--out", "OUT")),
    ],
)
def test_a_missing_extra_is_one_sentence_and_code_2(extra: str, arguments: tuple[object, ...], tmp_path: Path) -> None:
    done = covey_without(EXTRAS[extra], *(tmp_path if word == "OUT" else word for word in arguments))
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    # Before it there is at most a progress bar.
    assert done.stderr.strip().splitlines()[-1].endswith(f"get it with: pip install 'covey[{extra}]'")


def test_a_run_needs_no_extra_but_those_it_asks_for(tmp_path: Path) -> None:
    missing = tuple({module for extra in ("dashboard", "board", "masks", "flower", "ray") for module in EXTRAS[extra]})
    done = covey_without(missing, "run", "quick", "--rounds", 1, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "report.html").is_file()


def test_a_training_without_tensorboard_says_so_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with Board(tmp_path, 0) as board:
        board.add({"epoch": 1, "reward": 2.0})
    assert board.missing.endswith("pip install 'covey[board]'")
    assert not any(tmp_path.iterdir())


def test_parameters_of_secure_aggregation_load_no_cryptography() -> None:
    code = "import sys, covey.security.parameters, covey.simulation; print('cryptography' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "False"


def test_what_is_installed_is_required_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTRAS, "standard", ("json",))  # type: ignore[arg-type]
    monkeypatch.setitem(EXTRAS, "half", ("json", "no_such_module_anywhere"))  # type: ignore[arg-type]
    require_extra("standard", "a test")
    assert has_extra("standard")
    assert not has_extra("half")
    with pytest.raises(MissingExtraError, match=r"a test needs no_such_module_anywhere, .* 'covey\[half\]'"):
        require_extra("half", "a test")
