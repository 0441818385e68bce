"""Progress bars in a terminal; plain lines elsewhere."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

from assay.service.contract.results import Job

WIDTH = 30


class Bars:
    """One line per job, redrawn in place on a terminal, elsewhere printed on change.

    Args:
        labels: names of the jobs.
        output: where to draw; standard output if absent.
    """

    def __init__(self, labels: Sequence[str], output: TextIO | None = None) -> None:
        self._labels = list(labels)
        self._output = output or sys.stdout
        self._width = max(len(label) for label in self._labels)
        # Lines that have scrolled away cannot be redrawn.
        self._terminal = self._output.isatty() and len(labels) < shutil.get_terminal_size().lines
        self._drawn = False
        self._said: dict[str, tuple[str, int]] = {}

    def draw(self, jobs: Mapping[str, Job]) -> None:
        """Show the present progress of the jobs."""
        if self._terminal:
            if self._drawn:
                self._output.write(f"\x1b[{len(self._labels)}F")
            for label in self._labels:
                self._output.write(f"\x1b[2K{self._line(label, jobs[label])}\n")
            self._drawn = True
        else:
            self._say_changes(jobs)
        self._output.flush()

    def close(self) -> None:
        """Leave the last state on the screen."""
        self._output.flush()

    def _say_changes(self, jobs: Mapping[str, Job]) -> None:
        for label in self._labels:
            quarter = (jobs[label].state.value, int(4 * share(jobs[label])))
            if self._said.get(label) != quarter:
                self._said[label] = quarter
                self._output.write(self._line(label, jobs[label]) + "\n")

    def _line(self, label: str, job: Job) -> str:
        done = share(job)
        bar = "#" * round(done * WIDTH)
        eta = job.progress.eta_seconds
        left = f"{eta:4.0f} s left" if eta is not None and not job.state.terminal else ""
        standing = f"{job.state.value:<9} {left:<11} {job.message[:40]}"
        return f"{label:<{self._width}} [{bar:<{WIDTH}}] {done:4.0%} {standing}".rstrip()


def share(job: Job) -> float:
    """Share of the job that is done, in [0, 1]."""
    if job.state == "succeeded":
        return 1.0
    return min(job.progress.done / job.progress.total, 1.0) if job.progress.total else 0.0
