from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest

from covey.report import scripts
from covey.report.page_data import PAGES


def test_modules_are_joined_in_the_order_they_need_each_other() -> None:
    text = scripts.joined("page.js")
    made = re.findall(r'^modules\["(\w+\.js)"\] = ', text, re.MULTILINE)
    assert made[-1] == "page.js"
    assert len(made) == len(set(made))
    for name, body in re.findall(r'^modules\["(\w+\.js)"\] = (.*?)^\}\)\(\);$', text, re.MULTILINE | re.DOTALL):
        needed = re.findall(r'= modules\["(\w+\.js)"\];', body)
        assert all(made.index(other) < made.index(name) for other in needed)
    assert not re.search(r"^\s*(import|export)\b", text, re.MULTILINE)
    assert "</script" not in text.lower()


@pytest.mark.parametrize(
    "name", ["map.js", "blocks.js", "confusion.js", "curves.js", "map_view.js", "player.js", "panels.js", "frames.js"]
)
def test_each_module_works_on_its_own_too(name: str) -> None:
    assert scripts.joined(name).count(f'modules["{name}"] = ') == 1


@pytest.fixture
def give(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Puts modules of one's own in place of the assets."""

    def put(**files: str) -> None:
        monkeypatch.setattr(scripts, "asset", lambda name: files[name.removesuffix(".js")])

    scripts.joined.cache_clear()
    yield put
    scripts.joined.cache_clear()


def test_modules_in_a_circle_are_refused(give: Callable[..., None]) -> None:
    give(a='import { x } from "./b.js";\n', b='import { y } from "./a.js";\n')
    with pytest.raises(ValueError, match=r"a\.js -> b\.js -> a\.js"):
        scripts.joined("a.js")


@pytest.mark.parametrize(
    "line", ["export default 3;", 'import "./b.js";', 'import * as b from "./b.js";', "export { x };"]
)
def test_other_forms_of_import_and_export_are_refused(give: Callable[..., None], line: str) -> None:
    give(a=f"{line}\n", b="")
    with pytest.raises(ValueError, match="cannot bundle"):
        scripts.joined("a.js")


def test_names_can_be_changed_on_import(give: Callable[..., None]) -> None:
    give(a='import { draw as paint } from "./b.js";\npaint();\n', b="export function draw() {}\n")
    assert 'const { draw: paint } = modules["b.js"];' in scripts.joined("a.js")


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_joined_script_is_valid() -> None:
    for text in (scripts.joined("page.js"), scripts.chart_library()):
        result = subprocess.run(["node", "--check", "-"], input=text, text=True, capture_output=True, timeout=300)
        assert result.returncode == 0, result.stderr


def test_the_chart_library_is_the_version_its_note_names() -> None:
    (version,) = re.findall(r"uPlot \(v([\d.]+)\)", scripts.asset("uplot/uPlot.iife.min.js")[:200])
    assert f"uPlot {version} " in scripts.asset("uplot/README.md")


def test_scripts_styles_and_python_agree_on_the_page() -> None:
    theme, style = scripts.asset("theme.js"), scripts.asset("report.css")
    assert re.findall(r'page: "(#\w+)"', theme) == list(PAGES.values())
    assert re.findall(r"--page: (#\w+)", style) == list(PAGES.values())
