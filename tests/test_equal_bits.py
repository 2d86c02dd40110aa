"""The script that compares two checkouts finds what differs; the runs themselves are not played here."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from safetensors.numpy import save_file

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _benchmarks_on_the_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield
    for name in [name for name in sys.modules if name == "equal_bits" or name.split(".")[0] == "bits"]:
        del sys.modules[name]


@pytest.fixture
def compare() -> ModuleType:
    from bits import compare

    return compare


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    for side in ("old", "new"):
        (tmp_path / side).mkdir()
    return tmp_path / "old", tmp_path / "new"


def write(folders: tuple[Path, Path], name: str, old: str, new: str) -> tuple[Path, Path]:
    for folder, text in zip(folders, (old, new), strict=True):
        (folder / name).write_text(text, encoding="utf-8")
    return folders[0] / name, folders[1] / name


def save(
    folders: tuple[Path, Path], name: str, old: np.ndarray, new: np.ndarray, **header: object
) -> tuple[Path, Path]:
    given = {"covey": json.dumps(header)} if header else None
    for folder, array in zip(folders, (old, new), strict=True):
        save_file({"models": array}, folder / name, metadata=given)
    return folders[0] / name, folders[1] / name


def test_equal_files_have_no_differences(compare: ModuleType, folders: tuple[Path, Path]) -> None:
    weights = np.array([[1.0, np.nan], [-0.0, 2.0]], dtype=np.float32)
    assert compare.compare_files(*save(folders, "models.safetensors", weights, weights.copy())) == []
    assert compare.compare_files(*write(folders, "rounds.csv", "round,loss\n1,0.5\n", "round,loss\n1,0.5\n")) == []


def test_a_flipped_bit_of_a_tensor_is_found(compare: ModuleType, folders: tuple[Path, Path]) -> None:
    old = np.linspace(1, 2, 12, dtype=np.float32).reshape(3, 4)
    new = old.copy()
    new.view(np.uint32)[1, 2] ^= 1
    (found,) = compare.compare_files(*save(folders, "models.safetensors", old, new))
    assert "tensor models: 1 of 12 values, first at [1, 2]" in found
    assert "largest difference 1.19e-07" in found


@pytest.mark.parametrize(("old", "new"), [(0.0, -0.0), (1.0, np.nan), (np.nan, 1.0), (np.inf, 1.0)])
def test_signs_of_zero_and_undefined_values_are_found(
    compare: ModuleType, folders: tuple[Path, Path], old: float, new: float
) -> None:
    pair = [np.array([value, 3.0]) for value in (old, new)]
    (found,) = compare.compare_files(*save(folders, "policy.safetensors", *pair))
    assert "first at [0]" in found


def test_other_shapes_and_types_are_found(compare: ModuleType) -> None:
    zeros = np.zeros((2, 3), dtype=np.float32)
    assert compare.compare_arrays("w", zeros, zeros.T) == ["tensor w: float32[2, 3] -> float32[3, 2]"]
    assert compare.compare_arrays("w", zeros, zeros.astype(np.float64))
    assert compare.compare_arrays("w", np.float64(1), np.float64(2)) != []


def test_a_tensor_that_is_missing_is_found(compare: ModuleType, folders: tuple[Path, Path]) -> None:
    save_file({"a": np.ones(2), "b": np.ones(2)}, folders[0] / "policy.safetensors")
    save_file({"a": np.ones(2)}, folders[1] / "policy.safetensors")
    (found,) = compare.compare_files(*(folder / "policy.safetensors" for folder in folders))
    assert found == "tensors in one file only: b"


def test_a_changed_digit_is_found(compare: ModuleType, folders: tuple[Path, Path]) -> None:
    old = "round,loss,served\n1,0.5,8\n2,0.25,8\n3,0.125,8\n"
    pair = write(folders, "rounds.csv", old, old.replace("0.25", "0.26").replace("0.125", "0.325"))
    assert compare.compare_files(*pair) == ["line 3, loss: 0.25 -> 0.26 (largest difference 0.2)"]


def test_rows_and_columns_that_come_or_go_are_found(compare: ModuleType, folders: tuple[Path, Path]) -> None:
    found = compare.compare_files(*write(folders, "users.csv", "a,b\n1,2\n", "a,c\n1,2\n3,4\n"))
    assert found == ["columns gone: b", "columns added: c", "1 rows -> 2"]
    assert compare.compare_files(*write(folders, "users.csv", "a,b\n1,2\n", "a,b\r\n1,2\r\n"))


def test_a_journal_is_compared_by_bytes(compare: ModuleType, folders: tuple[Path, Path]) -> None:
    line = '{"round": 0, "rho": [0.5]}\n'
    (found,) = compare.compare_files(*write(folders, "ledger.jsonl", line * 2, line + line.replace("0.5", "0.75")))
    assert found.startswith("line 2:")
    assert found.endswith("(largest difference 0.25)")
    assert compare.compare_files(*write(folders, "ledger.jsonl", line * 2, line)) != []


@pytest.mark.parametrize(
    ("present", "said"), [(0, "missing in new"), (1, "missing in old"), (None, "missing in old and new")]
)
def test_a_missing_file_is_found(
    compare: ModuleType, folders: tuple[Path, Path], present: int | None, said: str
) -> None:
    if present is not None:
        (folders[present] / "rounds.csv").write_text("round\n1\n", encoding="utf-8")
    assert compare.compare_files(*(folder / "rounds.csv" for folder in folders)) == [said]


def test_times_of_a_training_do_not_count(compare: ModuleType, folders: tuple[Path, Path]) -> None:
    assert (
        compare.compare_files(
            *write(folders, "metrics.csv", "epoch,reward,seconds\n1,2,3\n", "epoch,reward,seconds\n1,2,4\n")
        )
        == []
    )
    assert compare.compare_files(
        *write(folders, "metrics.csv", "epoch,reward,seconds\n1,2,3\n", "epoch,reward,seconds\n1,5,3\n")
    )


def test_a_summary_may_gain_keys_and_other_versions_but_lose_none(
    compare: ModuleType, folders: tuple[Path, Path]
) -> None:
    old = {"privacy": {"rho": [0.1, 0.2]}, "versions": {"covey": "1"}, "wall_seconds": 3.0}
    new = {"privacy": {"rho": [0.1, 0.2], "more": 1}, "versions": {"covey": "2"}}
    assert compare.compare_files(*write(folders, "summary.json", json.dumps(old), json.dumps(new))) == []
    new["privacy"] = {"rho": [0.1, 0.30000000000000004]}
    found = compare.compare_files(*write(folders, "summary.json", json.dumps(old), json.dumps(new)))
    assert found == ["privacy.rho[1]: 0.2 -> 0.30000000000000004"]
    assert compare.compare_files(*write(folders, "summary.json", json.dumps(old), "{}")) == ["privacy is gone"]
    assert compare.compare_values({"a": 1}, {"a": 1.0}) == ["a: 1 -> 1.0"]


def test_scenarios_are_compared_on_common_keys(compare: ModuleType, folders: tuple[Path, Path]) -> None:
    assert compare.compare_files(*write(folders, "scenario.toml", "[a]\nx = 1\ny = 2\n", "[a]\nx = 1\nz = 3\n")) == []
    assert compare.compare_files(*write(folders, "scenario.toml", "[a]\nx = 1\n", "[a]\nx = 2\n")) == ["a.x: 1 -> 2"]


def test_the_ledger_of_a_checkpoint_is_compared(compare: ModuleType, folders: tuple[Path, Path]) -> None:
    header = {"seed": 0, "policy": "greedy", "rounds": 2, "round": 2, "records": [], "ledger": {"rho": [0.5]}}
    same = np.ones(3)
    old, new = save(folders, "checkpoint.safetensors", same, same, version="1", **header)
    assert compare.compare_files(old, new) == []
    save_file({"models": same}, new, metadata={"covey": json.dumps(header | {"ledger": {"rho": [0.25]}})})
    assert compare.compare_files(old, new) == ["header ledger rho[0]: 0.5 -> 0.25"]
    save_file({"models": same}, new)
    assert "header has no ledger" in compare.compare_files(old, new)


def test_every_case_has_a_name_of_its_own_and_compares_something() -> None:
    from bits.cases import SHARED, cases

    names = [case.name for case in cases()]
    assert len(set(names)) == len(names)
    assert set(names) >= SHARED
    assert all(case.steps and case.files for case in cases())
    assert all(case.workers == (1, 2) for case in cases(everywhere=True) if case.counted)


def test_a_case_without_its_data_is_not_called_equal(tmp_path: Path) -> None:
    from bits.cases import cases
    from equal_bits import Comparison

    (paper,) = (case for case in cases() if case.name == "paper")
    for data in (None, tmp_path):
        verdict = Comparison(None, None, tmp_path, tmp_path, data, "").judge(paper)
        assert verdict.status == "not compared"
        assert "cifar10" in str(verdict)


def test_a_folder_without_source_is_no_checkout(tmp_path: Path) -> None:
    from bits.checkout import Checkout

    with pytest.raises(SystemExit, match="is no checkout"):
        Checkout(tmp_path, tmp_path / "out", sys.executable)


def test_unknown_cases_are_refused() -> None:
    from equal_bits import chosen

    with pytest.raises(SystemExit, match="--list"):
        chosen(["no-such-case"], False)
