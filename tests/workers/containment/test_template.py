"""The template between a supervisor and its evaluators: which jobs share a process, and what it holds."""

from __future__ import annotations

import os
import signal
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.workers.containment.policy import Policy
from assay.workers.containment.settings import Containment
from assay.workers.containment.template import Child, Template, covers
from tests.support.children import in_a_child

FOLDER = Path("/state/artifacts/mine")
FIRST, SECOND = "/state/artifacts/a/weights", "/state/artifacts/b/weights"


def policy(*files: str, **changes: Any) -> Policy:
    return Policy(FOLDER, frozenset(map(Path, files)), (), Path("/tmp/own"), **changes)


def request(*files: str, folder: Path = FOLDER, kind: str = "evaluate", devices: int = 1) -> Any:
    """A request whose first file is that of its weights, and the others those of other models."""
    weights, *others = files or (None,)
    return {
        "kind": kind,
        "folder": str(folder),
        "weights": weights,
        "sources": {name: {"weights": name} for name in others},
        "spec": {"execution": {"devices": devices}},
    }


@pytest.mark.parametrize(
    ("allowed", "asked", "served"),
    [
        ((), (), True),
        ((FIRST,), (FIRST,), True),
        ((FIRST, SECOND), (FIRST,), True),
        ((FIRST, SECOND), (SECOND, FIRST), True),
        ((FIRST,), (FIRST, SECOND), False),
        ((FIRST,), (SECOND,), False),
        ((), (FIRST,), False),
    ],
)
def test_a_process_serves_what_its_files_allow(
    allowed: Sequence[str], asked: Sequence[str], served: bool
) -> None:
    assert covers(policy(*allowed), request(*asked), processes=False) == served


def test_a_process_serves_its_own_job_with_no_further_needs() -> None:
    assert not covers(None, request(), processes=False)
    assert not covers(policy(), request(), processes=False, compiler=True)
    assert not covers(policy(), request(folder=FOLDER / "other"), processes=False)
    assert not covers(policy(), request(), processes=True)
    assert covers(policy(processes=True), request(), processes=False)
    ranks = request(kind="train", devices=2)
    assert not covers(policy(processes=True), ranks, processes=True)
    assert covers(policy(processes=True, loopback=True), ranks, processes=True)
    assert not covers(policy(processes=True, loopback=True), request(), processes=False)


def template(state: Path, requests: int, reports: int) -> Template:
    """Of evaluators without containment."""
    return Template(
        Containment("off", state),
        requests,
        reports,
        prepare=lambda request: None,
        serve=lambda *pipes: None,
        threads=1,
        gpu=False,
    )


def test_the_folder_of_a_job_is_closed_to_other_users(tmp_path: Path) -> None:
    """Also a folder of root: evaluators of other users may pass through the folder above."""
    folder = tmp_path / "artifacts" / "job"

    def work() -> int:
        os.umask(0)
        template(tmp_path, *os.pipe())._policy(request(folder=folder), False, tmp_path)
        return stat.S_IMODE(folder.stat().st_mode)

    assert in_a_child(work) == 0o770


@pytest.mark.costly
@pytest.mark.parametrize(
    ("chunks", "ended"),
    [
        (["x" * 600, "x" * 600], True),  # one line in two parts
        (["x" * 600 + "\n", "x" * 600 + "\n"], False),  # two lines
        (["x" * 600 + "\n" + "x" * 600, "x" * 300], False),  # a line and part of another one
    ],
)
def test_an_evaluator_whose_line_has_no_end_is_ended(
    tmp_path: Path, chunks: Sequence[str], ended: bool
) -> None:
    """The template keeps what comes before the end of a line, which would fill the memory."""

    def work() -> bool:
        sys.stderr = os.fdopen(2, "w", closefd=False)  # pytest's has a descriptor that is closed
        requests, reports = os.pipe()
        held = template(tmp_path, requests, reports)
        pid = os.fork()
        if pid == 0:
            signal.pause()
        read, write = os.pipe()
        child = Child(pid, tmp_path, write, read, None, 0, report_bytes=1000)
        for chunk in chunks:
            os.write(write, chunk.encode())
            held._forward(child)
        os.kill(pid, signal.SIGUSR1)  # the first of two signals counts
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL

    assert in_a_child(work) == ended
