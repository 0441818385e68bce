"""Cost of containing evaluators: `python -m benchmarks.containment`.

Small jobs one after another in one evaluator, each a plan and an evaluation of 40 digits by PGD: "off" in one
process that keeps its data set (as before the containment), "auto" in a contained process for each job. The
first job of each, which imports libraries, is not counted. Turns alternate; seconds are wall time per job,
the median of all.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

from assay.workers.settings import WorkerSettings
from assay.workers.supervision.evaluator_process import EvaluatorProcess

TURNS, JOBS = 3, 12
SHAPE = {"image_size": 16, "patch_size": 8, "width": 12, "depth": 1, "heads": 2}
SPEC: dict[str, Any] = {
    "kind": "evaluate",
    "name": "",
    "seed": 0,
    "tags": [],
    "priority": 5,
    "timeout_seconds": None,
    "protocol": "pixel",
    "limit": 40,
    "model": {"name": "symvit", "params": SHAPE, "weights": None},
    "data": {"name": "digits", "params": {}},
    "evaluations": [{"name": "pgd", "params": {"epsilon": 0.05, "steps": 10}, "data": None}],
    "execution": {"device": "cpu", "dtype": "float32", "batch_size": 32},
}
Mode = Literal["off", "auto"]


def ask(evaluator: EvaluatorProcess, folder: Path, kind: str, plan: object = None) -> Any:
    """The answer to one request."""
    request: Any = {"kind": kind, "job": folder.name, "spec": SPEC, "plan": plan, "folder": str(folder)}
    shard: dict[str, Any] = {"evaluation": 0, "start": 0, "stop": 40, "cores": 1}
    files: dict[str, Any] = {"weights": None, "sources": {}}
    evaluator.send(request | shard | files | {"shard_seconds": 240.0, "checkpoint_seconds": 60.0})
    while (message := evaluator.receive(600)) is None or message["type"] == "progress":
        pass
    assert message["type"] != "error", message
    return message


def turn(mode: Mode) -> tuple[list[float], dict[str, float]]:
    """Seconds of each job, and MiB of the processes' own memory after the last."""
    with tempfile.TemporaryDirectory() as state:
        settings = WorkerSettings(state=Path(state), sandbox=mode)
        evaluator = EvaluatorProcess(settings)
        try:
            seconds = []
            for number in range(JOBS + 1):
                begun = time.perf_counter()
                folder = settings.folder(f"job-{number}")
                ask(evaluator, folder, "evaluate", ask(evaluator, folder, "plan")["plan"])
                seconds.append(time.perf_counter() - begun)
            children = Path(f"/proc/{evaluator.pid}/task/{evaluator.pid}/children").read_text().split()
            memory = {"process": own_memory(evaluator.pid)}
            if mode == "auto":
                memory["child"] = own_memory(int(children[0]))
            return seconds[1:], memory
        finally:
            evaluator.stop(2)


def own_memory(pid: int) -> float:
    """MiB of a process, with its part of what it shares."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def main() -> None:
    """Print seconds per job in both modes, and their ratio."""
    modes: tuple[Mode, ...] = ("off", "auto")
    found: dict[str, list[float]] = {mode: [] for mode in modes}
    for _ in range(TURNS):
        for mode in modes:
            seconds, memory = turn(mode)
            found[mode] += seconds
            shown = ", ".join(f"{name} {mib:.0f} MiB" for name, mib in memory.items())
            sys.stdout.write(f"{mode:5} median {statistics.median(seconds):.3f} s per job; {shown}\n")
    off, auto = (statistics.median(found[mode]) for mode in modes)
    sys.stdout.write(
        f"off {off:.3f} s, auto {auto:.3f} s per job: {auto - off:+.3f} s, ratio {auto / off:.2f}\n"
    )


if __name__ == "__main__":
    main()
