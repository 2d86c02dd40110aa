"""The commands and snippets of Markdown pages: finding them, and running them in a folder that looks like a checkout.

Every `covey` or `python` of a page is a fork of one process (tests/forks.py): the stand-ins in the folder's .venv/bin
pass arguments, folder, environment and outputs on and return the exit code.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from tests.forks import ROOT, Forks
from tests.processes import Ended, run

#: Seconds for a block; the longest take one or two dozen on a quiet machine.
BLOCK_S = 900.0
#: `<!-- not run: reason -->`, nothing but empty lines, and a fenced block; either may be missing.
FENCE = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^>]+?) -->\n\s*)?"
    r"^(?P<ticks>```+)(?P<language>[^\n]*)\n(?P<code>.*?)^(?P=ticks)[ ]*$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, and why it is not run, if it is not."""

    page: str
    line: int
    language: str
    code: str
    reason: str | None

    def __str__(self) -> str:
        return f"{self.page}, line {self.line}:\n{self.code}"


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start("ticks")) + 1
        language = match["language"].strip() or ("sh" if match["code"].startswith("covey ") else "")
        found.append(Block(page.name, line, language, match["code"], match["reason"]))
    return found


def make_checkout(folder: Path, forks: Forks) -> None:
    """Fill a folder with what the commands of a page expect: make's files and a virtual environment."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "examples", "docs"):
        (folder / name).symlink_to(ROOT / name)
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    (folder / "home").mkdir()
    (programs / "activate").touch()  # the programs are on the path already
    for program in ("covey", "python"):
        forks.stand_in(program, programs / program)
    (folder / ".venv" / ".ready").touch()  # newer than what make compares it with: everything is set up


def run_block(block: Block, folder: Path, forks: Forks) -> Ended:
    """What running a sh or python block in the folder gives."""
    programs = folder / ".venv" / "bin"
    words = ["bash", "-euo", "pipefail", "-c", block.code]
    if block.language == "python":
        words = [str(programs / "python"), "-c", block.code]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("COVEY_")}
    environment |= {"HOME": str(folder / "home"), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    try:
        return run(words, cwd=folder, env=environment, limit_s=BLOCK_S)
    finally:
        forks.end_all()  # nothing that a block began goes on after it
