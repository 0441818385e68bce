"""Bits through the real service: the same outcomes from one worker and two, with and without kill -9.

An embedded service trains a small network and attacks it. Its examples leave the batch as they break, so that
slots are refilled all the time. One job runs on one worker and then, a copy of it, on two, whose evaluators
are killed in the middle. With another batch size the refills are others, and so is the rounding:
in float64 it changes no prediction and no pass, and the losses by no more than RELATIVE.
"""

from __future__ import annotations

import contextlib
import csv
import io
import math
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from assay.service.client import AssayClient
from benchmarks.acceptance.context import Context
from benchmarks.acceptance.record import Row, at_least, at_most, exactly, told
from tests.e2e.jobs import attacking, finished, learning, outcomes, pgd
from tests.e2e.running import SHARDED, RunningService, kill, wait_for

RELATIVE = 1e-9
BATCHES = (32, 20)
# Columns of real numbers; the others are labels, predictions, flags and passes.
ROUNDED = ("loss", "margin", "linf", "l2", "l1")
WAIT_SECONDS = 180.0
# So many examples must be left when the evaluator is killed.
LEFT = 20


def service(context: Context) -> list[Row]:
    """Compares the stored outcomes of the jobs."""
    rows = []
    with _running(context, workers=1) as client_of:
        client, _ = client_of
        training = finished(client, client.submit(learning(execution=_execution(context, 64))).id).id
        calm = _measured(client, _job(context, training, BATCHES[0], "float32"), context.folder / "calm")
        wide = [
            _measured(client, _job(context, training, size, "float64"), context.folder / f"wide-{size}")
            for size in BATCHES
        ]
    with _running(context, workers=2) as client_of:
        client, running = client_of
        job = client.submit(_job(context, training, BATCHES[0], "float32")).id
        total = wait_for(lambda: _begun(client, job), WAIT_SECONDS)
        victims = running.evaluators()
        for victim in victims:
            with contextlib.suppress(ProcessLookupError):  # some end with the one that started them
                kill(victim)
        left = total - client.job(job).progress.done
        ended = finished(client, job, WAIT_SECONDS)
        rough = outcomes(client, job, context.folder / "rough")
    different = [name for name in calm if calm[name] != rough.get(name)]
    rows += [
        told("outcomes that are compared", sum(len(_table(text)) for text in calm.values())),
        at_least("processes of evaluators that were killed", len(victims), 1),
        told("examples of attacks that were left at the kill", left),
        exactly("the kill came in the middle", str(left >= LEFT), "True"),
        exactly("attempts of the job that was killed", ended.attempt, 1),
        exactly("tables that differ by a bit from those of one undisturbed worker", len(different), 0),
        exactly("tables that are missing or more", len(calm.keys() ^ rough.keys()), 0),
    ]
    return [*rows, *_other_batches(*wide)]


@contextmanager
def _running(context: Context, workers: int) -> Iterator[tuple[AssayClient, RunningService]]:
    """The embedded service, with several shards in every evaluation."""
    state = context.folder / "state"
    with closing(
        RunningService(state, ASSAY_WORKERS=str(workers), ASSAY_RENDER_PLOTS="no", **SHARDED)
    ) as running:
        running.start()
        yield running.client, running


def _execution(context: Context, batch: int, dtype: str = "float32") -> dict[str, Any]:
    return {"device": context.asked, "batch_size": batch, "dtype": dtype}


def _job(context: Context, training: str, batch: int, dtype: str) -> dict[str, Any]:
    """Attacks, of which the first goes on with every example to its last step."""
    steps = 200 if context.kind == "cuda" else 60 if dtype == "float32" else 12
    evaluations = [pgd("1/255", steps=steps), pgd("8/255", steps=steps // 4)]
    if not context.dry:
        evaluations += [{"name": "square", "params": {"epsilon": "8/255", "queries": 100}}]
        evaluations += [{"name": "apgd", "params": {"epsilon": "4/255", "steps": 20}}]
    limit: dict[str, Any] = {"limit": 120 if dtype == "float32" else 60} if context.dry else {}
    return attacking(training, evaluations, execution=_execution(context, batch, dtype), **limit)


def _begun(client: AssayClient, job: str) -> int:
    """The number of examples in all, once some are done; 0 before."""
    progress = client.job(job).progress
    return (progress.total or 0) if progress.done else 0


def _measured(client: AssayClient, job: Mapping[str, Any], folder: Path) -> dict[str, str]:
    submitted = client.submit(dict(job)).id
    finished(client, submitted, WAIT_SECONDS)
    return outcomes(client, submitted, folder)


def _table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def _other_batches(one: Mapping[str, str], other: Mapping[str, str]) -> list[Row]:
    """Tables of two batch sizes, in float64."""
    others, furthest, n = 0, 0.0, 0
    for name in one.keys() | other.keys():
        for left, right in zip(_table(one[name]), _table(other[name]), strict=True):
            n += 1
            for column in left.keys() | right.keys():
                if left[column] == right[column]:
                    continue
                if column in ROUNDED and left[column] and right[column]:
                    furthest = max(furthest, _apart(float(left[column]), float(right[column])))
                else:
                    others += 1
    sizes = " and ".join(map(str, BATCHES))
    return [
        told(f"outcomes in batches of {sizes}, float64", n),
        exactly("predictions, flags or passes that differ between these", others, 0),
        at_most("largest relative difference of their numbers", furthest, RELATIVE),
    ]


def _apart(one: float, other: float) -> float:
    close = math.isclose(one, other, rel_tol=0.0, abs_tol=1e-12)
    return 0.0 if close else abs(one - other) / max(abs(one), abs(other))
