"""Every Python snippet of the library page and the README runs, and generated pages match their numbers."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


def snippets(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def script(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["README.md", "docs/library.md", "docs/environment.md", "docs/privacy.md"])
def test_snippets_run(page: str, tmp_path: Path) -> None:
    found = snippets(page)
    assert found
    for code in found:
        result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, f"{code}\n{result.stderr}"


def test_links_between_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_clustering_page_is_what_its_cells_say() -> None:
    study = script("experiments/clustering.py")
    assert (ROOT / "docs/clustering.md").read_text(encoding="utf-8") == study.render_page(ROOT / "results/clustering")


def test_the_benchmark_page_is_what_its_numbers_say() -> None:
    page = script("benchmarks/page.py")
    assert (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8") == page.render(ROOT / "benchmarks/results.json")


def test_the_policies_page_is_what_its_results_say() -> None:
    page = script("experiments/association_page.py")
    assert (ROOT / "docs/policies.md").read_text(encoding="utf-8") == page.render_page(ROOT / "results/association")


def test_the_identities_page_is_what_its_results_say() -> None:
    page = script("experiments/identities_page.py")
    assert (ROOT / "docs/identities.md").read_text(encoding="utf-8") == page.render_page(ROOT / "results/identities")


def test_the_results_page_is_what_its_files_say(monkeypatch: pytest.MonkeyPatch) -> None:
    from covey.figures.page import results_page

    monkeypatch.chdir(ROOT)
    assert (ROOT / "docs/results.md").read_text(encoding="utf-8") == results_page(Path("results/figures"))


def test_exit_codes_are_documented() -> None:
    from covey.errors import EXIT_CODES

    text = (ROOT / "docs/commands.md").read_text(encoding="utf-8").replace("`", "")
    for code, meaning in EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in text
