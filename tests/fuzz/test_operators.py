"""A short, fixed run of the fuzz of operators, and whether the fuzz would notice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.operators import build_guard

ROOT = Path(__file__).parents[2]


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz.operators", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.slow
def test_no_listed_operator_leaves_its_tensors() -> None:
    done = run("--calls", "2", "--seed", "0")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "0 failures of 0 overloads, 0 never valid" in done.stdout


@pytest.mark.slow
def test_no_call_that_hypothesis_draws_ends_the_process() -> None:
    done = run("--examples", "100")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "calls, " in done.stdout
    assert "0 failures" in done.stdout


@pytest.mark.slow
def test_hypothesis_finds_what_the_checks_prevent(tmp_path: Path) -> None:
    if build_guard(tmp_path) is None:
        pytest.skip("no C compiler, so that memory is not guarded")
    done = run("--examples", "300", "--unguarded", "--only", "_fft_r2c.default", "native_batch_norm.default")
    assert done.returncode == 1, done.stdout
    assert done.stdout.startswith("FAILED ")


@pytest.mark.costly
def test_the_fuzz_finds_what_the_checks_prevent(tmp_path: Path) -> None:
    if build_guard(tmp_path) is None:
        pytest.skip("no C compiler, so that memory is not guarded")
    wanted = ("_fft_r2c.default", "grid_sampler_2d.default", "median.dim", "native_batch_norm.default")
    done = run("--calls", "40", "--unguarded", "--only", *wanted)
    assert done.returncode == 1
    for name in wanted:
        assert f"FAILED {name}: " in done.stdout, done.stdout
