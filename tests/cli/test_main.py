"""The command itself: what it lists, and that listing costs little."""

from __future__ import annotations

import sys

import pytest
from tests.processes import run

import covey
from covey.cli.main import COMMANDS, load, main


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_command_says_itself(name: str) -> None:
    command = load(name)
    assert command.name == name
    assert (command.help or "").split("\n\n")[0].replace("\n", " ") == COMMANDS[name][2]


def test_help_lists_all_commands_and_imports_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    told = capsys.readouterr().out
    assert all(f" {name} " in told for name in COMMANDS)
    code = "import sys, covey.cli.main; print({'torch', 'numpy', 'pydantic', 'matplotlib'} & sys.modules.keys())"
    found = run([sys.executable, "-c", code])
    assert (found.returncode, found.stdout.strip()) == (0, "set()")


#: Shows the help of every command and of every command of its groups, then prints which heavy modules were loaded.
ALL_HELP = """
import contextlib, io, sys
import covey
from covey.cli.main import COMMANDS, load, main

def ask(*words):
    told = io.StringIO()
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(told):
        main([*words, "--help"])
    assert "Usage: " in told.getvalue(), words

ask()
for name in COMMANDS:
    ask(name)
    for inner in getattr(load(name), "commands", {}):
        ask(name, inner)
print({"torch", "matplotlib", "scipy", "sklearn", "numba", "fastapi", "cryptography", "flwr"} & sys.modules.keys())
"""


def test_help_of_every_command_loads_nothing_heavy() -> None:
    found = run([sys.executable, "-c", ALL_HELP])
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() == "set()"


@pytest.mark.parametrize(("words", "close"), [(["rn"], "run"), (["data", "ftch"], "fetch")])
def test_a_mistyped_command_gets_one_suggestion(
    words: list[str], close: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.count(f"Did you mean '{close}'?") == 1


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 7.45 GiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000000 bytes."),
    ],
)
def test_too_little_memory_is_said_in_one_sentence(
    error: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(**_: object) -> None:
        raise error

    monkeypatch.setattr("covey.cli.main.app", fails)
    with pytest.raises(SystemExit) as stopped:
        main(["run"])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert "Error: the memory of this machine is not enough" in said
    assert "the sizes in [model]" in said
    assert "Unexpected" not in said
    assert str(error) in said


def test_every_public_name_is_there() -> None:
    assert all(getattr(covey, name) is not None for name in covey.__all__)
    assert {*covey.__all__, "radio", "theory"} <= {*dir(covey)}
    assert covey.radio.place.__module__ == "covey.radio.placement"
    with pytest.raises(AttributeError, match="has no attribute 'simulat'"):
        _ = covey.simulat  # type: ignore[attr-defined]
