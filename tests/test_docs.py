"""Every command and snippet of the pages runs, links lead somewhere, generated pages match their numbers."""

from __future__ import annotations

import importlib.util
import pkgutil
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from tests.forks import Forks
from tests.pages import ROOT, Block, blocks, make_checkout, run_block
from tests.processes import run
from tests.test_layers import ALLOWED, SOURCE, imported_packages

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = {page: blocks(page) for page in PAGES}
RUN = {page: [b for b in found if b.language in ("sh", "python") and not b.reason] for page, found in BLOCKS.items()}
#: Commands that no page can run in a test, in any form.
NEVER_RUN = {
    "make test": "it runs this test",
    "pip install": "it changes the environment of the tests",
    "covey data fetch": "it needs a network; tests/data/test_fetch.py has a server of its own",
    "covey dashboard": "it serves until it is stopped; tests/dashboard starts it",
    "covey deploy": "it needs Flower, and takes minutes; `make test-deploy` plays demo, server, devices and faults",
    "make deploy-demo": "the same",
    "make bench-peers": "it installs four other projects and takes half an hour",
}


def script(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", [page for page in PAGES if RUN[page]], ids=lambda page: page.stem)
def test_commands_and_snippets_run(page: Path, forks: Forks, tmp_path: Path) -> None:
    make_checkout(tmp_path, forks)
    for block in RUN[page]:
        result = run_block(block, tmp_path, forks)
        assert result.returncode == 0, f"{block}\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}"


def test_blocks_that_are_not_run_say_why() -> None:
    for page, found in BLOCKS.items():
        marked = [block for block in found if block.reason]
        assert page.read_text(encoding="utf-8").count("<!-- not run") == len(marked), f"{page.name}: a mark is astray"
        assert all(block.language in ("sh", "python") for block in marked), page.name


def test_every_block_is_of_a_known_kind() -> None:
    for block in (block for found in BLOCKS.values() for block in found):
        included = block.language.startswith("{include}")
        assert included or block.language in ("sh", "python", "toml", "text"), f"{block}: say sh, python, toml or text"


def test_toml_blocks_are_scenarios() -> None:
    from covey.scenario import Scenario

    found = [block for many in BLOCKS.values() for block in many if block.language == "toml"]
    assert found
    for block in found:
        table = tomllib.loads(block.code)
        # Tables of a package's own pyproject.toml are shown too.
        Scenario.model_validate({name: value for name, value in table.items() if name != "project"})


def test_what_is_not_run_has_a_shorter_form_that_is() -> None:
    done = {command for many in RUN.values() for block in many for command in commands(block)}
    for block in (block for found in BLOCKS.values() for block in found if block.reason):
        for command in commands(block):
            assert command in done or command in NEVER_RUN, f"no page runs any '{command}': {block}"


def commands(block: Block) -> set[str]:
    """What a sh block calls: `covey run`, `covey data list`, `make run`, ..."""
    if block.language != "sh":
        return set()
    words = r"^(?:\.venv/bin/)?(covey data \w+|covey \w+|make [\w-]+|pip \w+)"
    return set(re.findall(words, block.code, re.MULTILINE))


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "examples" / "parts" / "README.md"]:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_names_of_the_package_in_the_pages_are_there() -> None:
    names = {
        (page.name, name)
        for page in [*PAGES, ROOT / "CONTRIBUTING.md"]
        for name in re.findall(r"`(covey(?:\.\w+)+)", page.read_text(encoding="utf-8"))
    }
    assert len(names) > 30
    for page, name in sorted(names):
        try:
            pkgutil.resolve_name(name)
        except (ImportError, AttributeError) as error:
            pytest.fail(f"{page} speaks of {name}: {error}")


def test_the_clustering_page_is_what_its_cells_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "experiments")
    page = script("experiments/clustering_page.py")
    assert (ROOT / "docs/clustering.md").read_text(encoding="utf-8") == page.render_page(ROOT / "results/clustering")


def test_the_benchmark_page_is_what_its_numbers_say() -> None:
    page = script("benchmarks/page.py")
    assert (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8") == page.render(ROOT / "benchmarks/results.json")


def test_the_policies_page_is_what_its_results_say() -> None:
    page = script("experiments/association_page.py")
    assert (ROOT / "docs/policies.md").read_text(encoding="utf-8") == page.render_page(ROOT / "results/association")


def test_the_identities_page_is_what_its_results_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "experiments")
    page = script("experiments/identities_page.py")
    assert (ROOT / "docs/identities.md").read_text(encoding="utf-8") == page.render_page(ROOT / "results/identities")


def test_the_page_on_rotated_mnist_is_what_its_cells_say() -> None:
    page = script("experiments/rotated_mnist_page.py")
    rendered = page.render_page(ROOT / "results/rotated_mnist")
    assert (ROOT / "docs/rotated_mnist.md").read_text(encoding="utf-8") == rendered


def test_the_page_on_ifca_is_what_its_results_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "experiments")
    page = importlib.import_module("ifca_mnist_page")
    rendered = page.render_page(ROOT / "results/ifca_mnist")
    assert (ROOT / "docs/ifca_mnist.md").read_text(encoding="utf-8") == rendered


def test_the_results_page_is_what_its_files_say(monkeypatch: pytest.MonkeyPatch) -> None:
    from covey.figures.page import results_page

    monkeypatch.chdir(ROOT)
    assert (ROOT / "docs/results.md").read_text(encoding="utf-8") == results_page(Path("results/figures"))


def test_exit_codes_are_documented() -> None:
    from covey.errors import EXIT_CODES

    text = (ROOT / "docs/commands.md").read_text(encoding="utf-8").replace("`", "")
    for code, meaning in EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in text


def test_the_index_names_every_page_once() -> None:
    text = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    text = text[text.index("## Start") :]
    linked = re.findall(r"\]\(([\w/-]+\.(?:md|rst))\)", text)
    docs = ROOT / "docs"
    there = {str(path.relative_to(docs)) for path in [*docs.glob("*.md"), *docs.glob("reference/*.rst")]}
    assert sorted(linked) == sorted(there - {"index.md"})


def test_every_package_has_a_page_in_the_reference() -> None:
    without = {"bench", "cli", "figures", "dashboard"}  # commands and pages; nothing to import
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")} - without
    for package in packages:
        page = (ROOT / f"docs/reference/{package}.rst").read_text(encoding="utf-8")
        assert f".. automodule:: covey.{package}\n" in page


def test_the_top_of_the_reference_names_all_that_covey_gives() -> None:
    import covey

    page = (ROOT / "docs/reference/covey.rst").read_text(encoding="utf-8")
    documented = re.findall(r"^\.\. auto\w+:: covey\.(\w+)$", page, re.MULTILINE)
    assert sorted(documented) == sorted(set(covey.__all__) - {"__version__"})


def test_pictures_of_the_architecture_are_what_their_script_draws() -> None:
    diagrams = script("docs/images/diagrams.py")
    for name, draw in diagrams.PICTURES.items():
        drawn = (ROOT / "docs/images" / name).read_text(encoding="utf-8")
        assert drawn == draw(), "run python docs/images/diagrams.py"


def test_imports_go_down_the_picture_of_the_packages() -> None:
    rows = script("docs/images/diagrams.py").LAYERS
    height = {name: len(rows) - number for number, row in enumerate(rows) for name, _ in row}
    modules = {path.stem for path in SOURCE.glob("*.py")} - {"__init__", "__main__"}
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert set(height) == packages | modules
    for package in sorted(packages):
        found = {name for path in (SOURCE / package).rglob("*.py") for name in imported_packages(path)}
        # An observation knows its uplink by type only, which is imported where types are checked.
        typed = {"uplink"} if package == "network" else set()
        for below in (found | ALLOWED.get(package, set())) & set(height) - {package} - typed:
            assert height[below] < height[package], f"{package} stands beside or below {below}, which it may import"


@pytest.mark.timeout(1200)
def test_the_site_builds_without_a_warning_and_needs_no_network(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="`make docs` installs Sphinx and builds the site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", str(ROOT / "docs"), str(tmp_path)]
    built = run(command, limit_s=900)
    assert built.returncode == 0, built.stderr
    for page in tmp_path.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r"<(?:script|img|iframe)[^>]* src=\"https?:|<link[^>]* href=\"https?:", text), page.name
    assert (tmp_path / "_images" / "packages.svg").exists()
