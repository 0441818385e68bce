"""Samples of laws: every case is in a part, a part has cases of all kinds, what changed is always tried."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sampling import PARTS, costly_left_out, left_out, part_of_commit, positions

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("cases", [1, 2, 7, 8, 9, 64, 101])
def test_the_parts_have_every_case_once_and_each_part_the_first(cases: int) -> None:
    parts = [positions("test_law", cases, part) for part in range(PARTS)]
    assert sorted(case for part in parts for case in part) == list(range(cases))
    assert max(map(len, parts)) <= 1 + cases // PARTS
    names = [f"test_law[{case}]" for case in range(cases)]
    for part, found in enumerate(parts):
        assert left_out(names, part) == {f"test_law[{case}]" for case in range(1, cases) if case not in found}


def test_a_part_has_both_values_of_a_parameter_that_alternates() -> None:
    for part in range(PARTS):
        found = positions("test_law", 200, part)
        for period in (2, 4):
            assert {case % period for case in found} == set(range(period))


def test_cases_of_a_changed_file_are_always_in() -> None:
    names = [
        f"tests/laws/test_a.py::test_law[{name}-{norm}]" for name in ("pgd", "pgd_l1") for norm in "abcdefgh"
    ]
    for part in range(PARTS):
        others = left_out(names, part)
        assert len(names) - len(others) in (1, 2)
        assert not any("[pgd-" in name for name in left_out(names, part, {"pgd"}))
        assert {name for name in others if "pgd_l1" in name} <= left_out(names, part, {"pgd"})


def test_dear_tests_of_a_folder_are_cases_of_one_kind_and_those_of_a_changed_file_are_in() -> None:
    names = [f"tests/jobs/test_{file}.py::test_{test}" for file in ("whole", "held") for test in range(12)]
    parts = [{*names} - costly_left_out(names, part) for part in range(PARTS)]
    assert sorted(name for part in parts for name in part) == sorted(names)
    for part in range(PARTS):
        others = costly_left_out(names, part)
        assert len(names) - len(others) in (1, 2)
        for changed in ("held", "test_held"):
            found = costly_left_out(names, part, {changed})
            assert found == {name for name in others if "test_held" not in name}


def test_the_part_is_that_of_the_commit() -> None:
    assert part_of_commit() in range(PARTS)


LAW = """
import pytest

@pytest.mark.sampled
@pytest.mark.parametrize("case", range(32))
def test_law(case):
    pass

@pytest.mark.costly
@pytest.mark.parametrize("case", range(32))
def test_dear(case):
    pass
"""


@pytest.mark.parametrize(
    ("options", "cases"),
    [
        ([".", "--part", "3"], {4, 5}),
        ([".", "--part", "3", "-m", "slow"], {59, 60}),
        ([".", "--part", "all"], {64}),
        (["test_law.py"], {64}),
    ],
    ids=["a part", "the others", "all", "a file that is named"],
)
def test_a_run_has_its_part_of_a_law(tmp_path: Path, options: list[str], cases: set[int]) -> None:
    (tmp_path / "test_law.py").write_text(LAW)
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\npythonpath = {ROOT}\nmarkers =\n    slow:\n    sampled:\n    costly:\n    trains:\n"
        "addopts = -m 'not slow' --import-mode=importlib\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert any(f"{count} passed" in done.stdout for count in cases), done.stdout
