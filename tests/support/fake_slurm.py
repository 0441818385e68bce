"""Slurm's commands as scripts on PATH, over a file of jobs; `python fake_slurm.py` is each of them.

Jobs are lines `ID|STATE|REASON|NAME|COMMENT`; scripts that were submitted are files beside them; the file
`partitions` has partitions with their limits, `ended` jobs as `ID|STATE|NODE`, `refusal` why none is taken.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

COMMANDS = ("sbatch", "squeue", "scancel", "sinfo")


class FakeSlurm:
    """The queue of a fake Slurm in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs = folder / "jobs"
        self.jobs.touch()

    def install(self) -> Path:
        """The folder of its commands, to be put on PATH."""
        commands = self.folder / "bin"
        commands.mkdir()
        for name in COMMANDS:
            script = commands / name
            script.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {self.folder} {name} "$@"\n')
            script.chmod(0o755)
        return commands

    def rows(self) -> list[list[str]]:
        """The jobs: number, state, reason, name, comment."""
        return [line.split("|") for line in self.jobs.read_text().splitlines()]

    def write(self, rows: list[list[str]]) -> None:
        """Replaces the jobs."""
        self.jobs.write_text("".join("|".join(row) + "\n" for row in rows))

    def start(self, count: int) -> None:
        """Starts so many pending jobs; the others wait for Priority."""
        rows = self.rows()
        for row in rows:
            if row[1] == "PENDING":
                row[1:3] = ["RUNNING", "None"] if count > 0 else ["PENDING", "Priority"]
                count -= 1
        self.write(rows)

    def excluded(self) -> str:
        """The nodes that the last submission excludes."""
        return (self.folder / "excluded").read_text()

    def states(self) -> list[str]:
        """The states of the jobs."""
        return [row[1] for row in self.rows()]


def _value(option: str, given: list[str]) -> str:
    return next(word.partition("=")[2] for word in given if word.startswith(f"{option}="))


def main(folder: str, name: str, given: list[str]) -> None:
    """One call of a command."""
    slurm = FakeSlurm(Path(folder))
    if (Path(folder) / "broken").exists():
        sys.exit("slurm_load_jobs error: Unable to contact slurm controller")
    rows = slurm.rows()
    if name == "squeue" and "--states=all" in given:
        ends = Path(folder) / "ended"
        print(ends.read_text() if ends.exists() else "")
    elif name == "squeue":
        assert _value("--user", given) == str(os.getuid())
        for row in rows:
            if row[3] == _value("--name", given):
                print("|".join([*row[:3], *(row[4:] or ["(null)"])]))
    elif name == "sinfo":
        partitions = Path(folder) / "partitions"
        print(partitions.read_text() if partitions.exists() else "gpu|infinite\ncpu|1-00:00:00")
    elif "--test-only" in given:
        print(f"sbatch: Job 1 to start, script of {len(sys.stdin.read())}", file=sys.stderr)
    elif name == "sbatch" and (Path(folder) / "refusal").exists():
        sys.exit((Path(folder) / "refusal").read_text())
    elif name == "sbatch":
        script = sys.stdin.read()
        array = 1 + max([int(row[0].partition("_")[0]) for row in rows], default=100)
        fleet = next(line.partition("=")[2] for line in script.splitlines() if "--job-name=" in line)
        comment = next(line.partition("=")[2] for line in script.splitlines() if "--comment=" in line)
        first, _, last = _value("--array", given).partition("-")
        more = [[f"{array}_{n}", "PENDING", "None", fleet, comment] for n in range(int(first), int(last) + 1)]
        slurm.write(rows + more)
        (Path(folder) / f"script-{array}").write_text(script)
        avoided = [word.partition("=")[2] for word in given if word.startswith("--exclude=")]
        (Path(folder) / "excluded").write_text(",".join(avoided))
        (Path(folder) / "variables").write_text(" ".join(sorted(os.environ)))
        print(f"{array};cluster")
    else:
        gone = {word for word in given if not word.startswith("--")}
        wanted = [word.partition("=")[2] for word in given if word.startswith("--state=")]
        slurm.write([row for row in rows if row[0] not in gone or row[1] not in (wanted or [row[1]])])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
