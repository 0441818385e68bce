"""Slurm's commands: the jobs of a fleet, asking for workers, and giving pending and held workers up."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from assay.service.client.transport import KEY_VARIABLE
from assay.service.contract.problems import Problems, nearest
from assay.service.workers.slurm import ENDING_SECONDS, SlurmFleet, comment_of

ANSWER_SECONDS = 60
AT_ONCE = 1000  # Jobs of an array; Slurm's own limit is 1001 (MaxArraySize)
PENDING = "PENDING"
# Requeued as often as Slurm lets a job be (MaxBatchRequeue, 5): it starts no more.
HELD = frozenset({"REQUEUE_HOLD", "SPECIAL_EXIT"})
REQUEUED = "BeginTime"  # A pending job's reason: not before a time
NO_REASON = frozenset({"None", "(null)", ""})
SHORTER = "ask for less time, with a smaller --max-seconds"
REMEDIES = {  # By what Slurm says: what it waits for will not come by itself
    "TimeLimit": SHORTER,
    "MaxWallDuration": SHORTER,
    "time limit": SHORTER,
    "generic resource": "--gres as Slurm has it; --device cpu on a cluster without GPUs",
    "invalid partition": "--partition as `sinfo` lists it",
    "BadConstraints": "--constraint, --memory and --cpus that a node has",
    "feature specification": "--constraint with features that `sinfo --format=%f` lists",
    "Invalid account": "--account and --partition that `sacctmgr show associations` has together",
    "Invalid qos": "--qos that `sacctmgr show qos` lists",
}


class SlurmUnavailable(Exception):
    """A command of Slurm failed; it says why."""


@dataclass(frozen=True)
class SlurmJobs:
    """The jobs of a fleet: ids of the pending, oldest first, with their most frequent reason; of the held.

    Not among `pending`: `stale`, pending with other options than the present; `delayed`, requeued and not to
    start for Slurm's two minutes. `ids`: of all.
    """

    running: int
    pending: tuple[str, ...] = ()
    reason: str = ""
    held: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    delayed: tuple[str, ...] = ()
    ids: frozenset[str] = field(default=frozenset(), compare=False)


def remedy(said: str) -> str:
    """What to do against a reason or an error of Slurm; empty where waiting may help."""
    return next((f": {text}" for words, text in REMEDIES.items() if words.lower() in said.lower()), "")


def check(fleet: SlurmFleet) -> None:
    """Raises InvalidSpec: no such partition, or none with so long a limit. SlurmUnavailable."""
    lines = _answer(["sinfo", "--all", "--noheader", "--format=%R|%l"]).split()
    limits = dict(line.split("|", 1) for line in lines if "|" in line)
    problems, named = Problems(), fleet.partition.split(",")
    for name in named:
        if name not in limits:
            near = nearest(name, [*limits])
            problems.add(
                ("--partition",), "unknown to Slurm", given=name, allowed=sorted(limits), nearest=near
            )
    longest = [_seconds(limits[name]) for name in named if name in limits]
    most = max((seconds for seconds in longest if seconds is not None), default=0)
    if longest and None not in longest and fleet.minutes * 60 > most:
        text = f"is longer than the partition's limit of {most} s allows a worker that ends by itself"
        allowed = f"at most {most // 60 * 60 - ENDING_SECONDS}"
        problems.add(("--max-seconds",), text, given=fleet.max_seconds, allowed=allowed)
    problems.raise_if_any()


def tried(script: str) -> str:
    """What Slurm says of a script that it does not run. SlurmUnavailable: it would refuse it."""
    return _answer(["sbatch", "--test-only", "--export=ALL"], script, _passed(), told=True)


def _seconds(limit: str) -> int | None:
    """Slurm's [DAYS-][HOURS:]MINUTES:SECONDS; None: without a limit."""
    days, _, rest = limit.rpartition("-")
    try:
        parts = [int(part) for part in rest.split(":")]
    except ValueError:
        return None  # infinite
    seconds: int = sum(part * 60**at for at, part in enumerate(reversed(parts)))
    return int(days or 0) * 86400 + seconds


def jobs_of(name: str, script: str = "") -> SlurmJobs:
    """The fleet's jobs of this user, found by their name: also of an earlier controller.

    `script`: of workers that are asked for now; empty: none is stale.
    """
    rows = _rows(name, "ID|STATE|REASON|COMMENT", "--format=%i|%T|%r|%k")
    # Comments of another origin, such as a plug-in of the cluster, say nothing of the options.
    present = next((line for line in script.splitlines() if "--comment=" in line), "").partition("=")[2]
    ours = comment_of(name)
    old = {
        number
        for number, state, _, comment in rows
        if state == PENDING and present and comment != present and f"{comment}:".startswith(f"{ours}:")
    }
    pending = [(row[0], row[2]) for row in rows if row[1] == PENDING and row[0] not in old]
    delayed = tuple(number for number, reason in pending if reason == REQUEUED)
    reasons = Counter(reason for _, reason in pending if reason not in NO_REASON)
    most = reasons.most_common(1)
    held = tuple(row[0] for row in rows if row[1] in HELD)
    running = len(rows) - len(pending) - len(held) - len(old)
    waiting = tuple(number for number, _ in pending if number not in delayed)
    ids = frozenset(row[0] for row in rows)
    reason = most[0][0][:200] if most else ""
    return SlurmJobs(running, waiting, reason, held, tuple(sorted(old)), delayed, ids)


def ended(name: str, numbers: Iterable[str], besides: Collection[str]) -> list[tuple[str, str]]:
    """Which of these jobs of a fleet ended in other states, by number, with their node; empty: forgotten."""
    rows = _rows(name, "ID|STATE|NODE", "--states=all", "--format=%i|%T|%N")
    known = {number: (state, node) for number, state, node in rows}
    ends = [(number, *known.get(number, ("", ""))) for number in numbers]
    return sorted((number, node) for number, state, node in ends if state not in besides)


def _rows(name: str, fields: str, *options: str) -> list[list[str]]:
    asked = ["squeue", "--noheader", "--array", "--sort=i", f"--name={name}", f"--user={os.getuid()}"]
    most = fields.count("|")
    rows = [line.split("|", most) for line in _answer([*asked, *options]).splitlines() if line.strip()]
    for row in rows:
        if len(row) != most + 1:
            raise SlurmUnavailable(f"squeue answers {'|'.join(row)!r}, not {fields}")
    return rows


def submit(script: str, count: int, avoided: Collection[str] = ()) -> dict[str, int]:
    """Asks for so many workers, on none of the avoided nodes; the ids of the arrays, with their sizes."""
    sizes = [min(AT_ONCE, count - at) for at in range(0, count, AT_ONCE)]
    command = ["sbatch", "--parsable", "--export=ALL"]
    if avoided:
        command.append(f"--exclude={','.join(sorted(avoided))}")
    return {
        _answer([*command, f"--array=1-{size}"], script, _passed()).strip().partition(";")[0]: size
        for size in sizes
    }


def give_up(jobs: Sequence[str], state: str = PENDING) -> None:
    """Cancels these jobs where they are still in a state; empty: in any."""
    options = [f"--state={state}"] if state else []
    for at in range(0, len(jobs), AT_ONCE):
        _answer(["scancel", *options, *jobs[at : at + AT_ONCE]])


def _passed() -> dict[str, str]:
    """The variables of workers: the controller's own key is not theirs."""
    return {name: value for name, value in os.environ.items() if name != KEY_VARIABLE}


def _answer(
    command: Sequence[str], given: str = "", passed: Mapping[str, str] | None = None, *, told: bool = False
) -> str:
    """What a command prints; `told`: what it says on its standard error."""
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
        said = " ".join(done.stderr.split())[:500] or f"code {done.returncode}"
        raise SlurmUnavailable(f"{command[0]}: {said}{remedy(said)}")
    return " ".join(done.stderr.split()) if told else done.stdout
