"""Slurm's commands: the jobs of a fleet, asking for workers, and giving pending and held workers up."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assay.service.client.transport import KEY_VARIABLE

ANSWER_SECONDS = 60
AT_ONCE = 1000  # Jobs of an array; Slurm's own limit is 1001 (MaxArraySize)
PENDING = "PENDING"
# Requeued as often as Slurm lets a job be (MaxBatchRequeue, 5): it starts no more.
HELD = frozenset({"REQUEUE_HOLD", "SPECIAL_EXIT"})
NO_REASON = frozenset({"None", "(null)", ""})


class SlurmUnavailable(Exception):
    """A command of Slurm failed; it says why."""


@dataclass(frozen=True)
class SlurmJobs:
    """The jobs of a fleet: ids of the pending, oldest first, with their most frequent reason; of the held."""

    running: int
    pending: tuple[str, ...] = ()
    reason: str = ""
    held: tuple[str, ...] = ()


def jobs_of(name: str) -> SlurmJobs:
    """The fleet's jobs of this user, found by their name: also of an earlier controller."""
    asked = ["squeue", "--noheader", "--array", "--sort=i", f"--name={name}", f"--user={os.getuid()}"]
    rows = [line.split("|") for line in _answer([*asked, "--format=%i|%T|%r"]).splitlines() if line.strip()]
    if any(len(row) != 3 for row in rows):
        raise SlurmUnavailable(f"squeue answers {'|'.join(rows[0])!r}, not ID|STATE|REASON")
    pending = [(number, reason) for number, state, reason in rows if state == PENDING]
    reasons = Counter(reason for _, reason in pending if reason not in NO_REASON)
    most = reasons.most_common(1)
    held = tuple(number for number, state, _ in rows if state in HELD)
    running = len(rows) - len(pending) - len(held)
    waiting = tuple(number for number, _ in pending)
    return SlurmJobs(running, waiting, most[0][0][:200] if most else "", held)


def submit(script: str, count: int) -> list[str]:
    """Asks for so many workers; the ids of the arrays."""
    sizes = [min(AT_ONCE, count - at) for at in range(0, count, AT_ONCE)]
    command = ["sbatch", "--parsable", "--export=ALL"]
    # The controller's own key is no worker's.
    passed = {name: value for name, value in os.environ.items() if name != KEY_VARIABLE}
    return [
        _answer([*command, f"--array=1-{size}"], script, passed).strip().partition(";")[0] for size in sizes
    ]


def give_up(jobs: Sequence[str], state: str = PENDING) -> None:
    """Cancels these jobs where they are still in a state; empty: in any."""
    options = [f"--state={state}"] if state else []
    for at in range(0, len(jobs), AT_ONCE):
        _answer(["scancel", *options, *jobs[at : at + AT_ONCE]])


def _answer(command: Sequence[str], given: str = "", passed: Mapping[str, str] | None = None) -> str:
    try:
        done = subprocess.run(  # noqa: S603 (options are checked)
            command,
            input=given,
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS,
            check=False,
            env=passed,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmUnavailable(f"{command[0]}: {error}") from None
    if done.returncode != 0:
        raise SlurmUnavailable(f"{command[0]}: {done.stderr.strip()[:500] or f'code {done.returncode}'}")
    return done.stdout
