"""Workers on a real job, PGD on digits: overhead per shard, and two workers against one.

The evaluator reports its own evaluation time. The rest of a busy worker's time between two shards (claim,
request, return of the outcome into the database) is measured on shards of a few seconds, and stated as a
share of two minutes, the target of plans.
"""

from __future__ import annotations

import statistics
import time
from itertools import pairwise
from typing import Any

from sqlalchemy import select

from assay.service.client import AssayClient
from assay.service.store.store import Store, open_store
from assay.service.store.tables import outcomes
from benchmarks.service_running import embedded, postgresql, table

# Enough evaluations for a job of minutes, where two workers pay off: an evaluator needs seconds to start, and
# one worker plans while the other can only start its own.
NOMINAL_SECONDS, EVALUATIONS, GOAL_SHARE, GOAL_SPEEDUP = 120, 240, 5.0, 1.8
# Nominal, for the time between many shards, and for few that last: they take a tenth or so, because an
# untrained model is wrong on most examples.
SHORT, LONG = 4, 60
STEPS, BATCH = 60, 64
MODEL = {"image_size": 32, "patch_size": 8, "depth": 4, "width": 96, "heads": 3}


def overhead(repeats: int) -> str:
    """Time between evaluations of a worker that always has a next shard."""
    with postgresql() as url, open_store(url) as store, embedded(url, **_settings(1, SHORT)) as address:
        gaps = _gaps(store, _run(address, evaluations=repeats)[0])
    middle, worst = statistics.median(gaps), max(gaps)
    share = 100 * middle / (NOMINAL_SECONDS + middle)
    rows = [
        ["shards", "median s", "max s", f"share of {NOMINAL_SECONDS} s"],
        [str(len(gaps) + 1), f"{middle:.2f}", f"{worst:.2f}", f"{share:.2f} %"],
    ]
    return f"{table(rows)}not evaluating, per shard; goal: under {GOAL_SHARE:g} %\n"


def speedup(repeats: int) -> str:
    """The same job with one and with two workers of one thread each, from submission to its end."""
    rows = [["run", "one worker s", "two workers s", "speed-up"]]
    for number in range(repeats):
        times = []
        for count in (1, 2):
            with postgresql() as url, embedded(url, **_settings(count, LONG)) as address:
                times.append(_run(address, evaluations=EVALUATIONS)[1])
        rows.append([str(number + 1), *(f"{seconds:.1f}" for seconds in times), f"{times[0] / times[1]:.2f}"])
    return f"{table(rows)}with the start of the evaluators; goal: {GOAL_SPEEDUP:g}\n"


def _settings(workers: int, shard_seconds: int) -> dict[str, str]:
    return {"WORKERS": str(workers), "SHARD_SECONDS": str(shard_seconds), "TORCH_THREADS": "1"}


def _run(address: str, evaluations: int) -> tuple[str, float]:
    """Runs the job, and returns its id and its seconds."""
    # So small that no example breaks and every evaluation takes all its steps.
    attacks = [
        {
            "name": "pgd",
            "params": {"epsilon": f"{number + 1}/255000", "steps": STEPS, "cycle_detection": False},
        }
        for number in range(evaluations)
    ]
    spec: dict[str, Any] = {
        "kind": "evaluate", "name": "benchmark", "model": {"name": "symvit", "params": MODEL},
        "data": {"name": "digits"}, "evaluations": attacks,
        "execution": {"device": "cpu", "batch_size": BATCH},
    }  # fmt: skip
    with AssayClient(address) as client:
        begin = time.perf_counter()
        job_id = client.submit(spec).id
        while (job := client.job(job_id)).state not in ("succeeded", "failed", "canceled", "timed_out"):
            time.sleep(0.2)
        if job.state != "succeeded":
            raise RuntimeError(f"the job is {job.state}: {job.error}")
        return job_id, time.perf_counter() - begin


def _gaps(store: Store, job_id: str) -> list[float]:
    """Seconds between the end of one shard's record and the next one's, less the evaluator's own time."""
    statement = select(outcomes.c.created_at, outcomes.c.seconds).where(outcomes.c.job_id == job_id)
    with store._database.reading() as connection:
        rows = connection.execute(statement.order_by(outcomes.c.created_at)).all()
    return [later.created_at - earlier.created_at - later.seconds for earlier, later in pairwise(rows)]
