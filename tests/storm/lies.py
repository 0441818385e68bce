"""Faults that lie or hang: boxes with other code, other data or a broken device, and stopped evaluators.

A liar's box works beside the honest ones until the service has named what is wrong with it. Each function
says whether the lie was told; one that was told and that no text names is a problem of the storm.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from functools import partial

from assay.workers.identity import CHANGED
from assay.workers.supervision.health import SELF_TEST_SECONDS
from tests.storm.disguise import Lie, version_of
from tests.storm.faults import Fault, Faults, wait_until
from tests.storm.surroundings import START_SECONDS

# With the start of a box, on a machine that does much else.
NAMED_SECONDS = 180.0
# After its deadline, an evaluator is ended within this time.
ENDED_SECONDS = 60.0
NO_PROGRESS = "no_progress: the shard made no progress for"


def other_code(faults: Faults) -> bool:
    """A box with other code, alone for a while: it gets nothing, and jobs name the identity they wait for."""
    cluster, evidence = faults.cluster, faults.evidence
    digest, liar = version_of(cluster.version)["digest"], version_of("a liar's")["digest"]
    box = cluster.add_liar("code")
    try:
        if not wait_until(lambda: evidence.online(liar), START_SECONDS):
            return False
        if not wait_until(lambda: evidence.outdated(liar), START_SECONDS):
            return False  # no job waits that others have planned
        cluster.stop_boxes()
        cluster.forget_dead()
        wanted = f"waits for workers of identity {digest}, which planned it; the 1 online have other"
        said = wait_until(lambda: evidence.in_job_messages(wanted), NAMED_SECONDS)
    finally:
        cluster.revive()
        wait_until(lambda: evidence.online(digest), START_SECONDS)
        cluster.remove(box)
    if evidence.in_logs(f"{box.name}.log", "claimed, fence"):
        faults.problems.append("a box with other code got a shard of a job that it had not planned")
    if said:
        faults.name("other code", said)
    return bool(said)


def exchanged_program(faults: Faults) -> bool:
    """A box whose evaluators have another program than its worker had at its start."""
    pattern = f"^program: {CHANGED}"
    return _lie(faults, "programs exchanged", "exchanged", partial(_unfit, faults, pattern))


def mixed_outcomes(faults: Faults) -> bool:
    """A box that claims under a false identity and measures, as workers before identities did."""
    seen = len(faults.evidence.in_logs("*.log", "was measured by other code than was planned"))

    def named() -> str:
        found = faults.evidence.in_logs("*.log", "was measured by other code than was planned")
        return found[-1] if len(found) > seen else ""

    return _lie(faults, "outcomes of other code", "mixed", named)


def other_data(faults: Faults) -> bool:
    """A box whose data set has another content than the plan's."""

    def named() -> str:
        said = faults.evidence.in_events("a worker gave a shard back: the data set .* in the plan")
        return said and faults.evidence.in_readiness("other_data", "has the content .* in the plan")

    return _lie(faults, "other data", "data", named)


def idle_device(faults: Faults) -> bool:
    """A box whose device does nothing: a matmul gives zeros."""
    pattern = "^cpu: a matmul of fixed integers gives the checksum 0"
    return _lie(faults, "devices that do nothing", "idle", partial(_unfit, faults, pattern))


def breaking_device(faults: Faults) -> bool:
    """A box whose device fails in the middle of its first shard, and every self-test since.

    Where another fault ends the shard's job, there is nothing to give back: the self-test alone names it.
    """

    def named() -> str:
        unfit = _unfit(faults, "^cpu: ")
        said = faults.evidence.in_events("a worker gave a shard back: cpu: a matmul")
        if not said and faults.evidence.in_logs("liar-*-breaks.log", ": interrupted"):
            said = unfit
        return said if unfit else ""

    return _lie(faults, "devices that break", "breaks", named)


def hang(faults: Faults) -> bool:
    """SIGSTOP of an evaluator that is never continued: the progress deadline has to end it.

    Or the limit of a self-test, if it has just been started; that names no progress, and it strikes again.
    """
    pid = faults.pick(faults.cluster.evaluators())
    if pid is None:
        return False
    before = len(faults.evidence.in_logs("box-*.log", NO_PROGRESS))
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    most = max(6 * faults.cluster.stall_seconds, SELF_TEST_SECONDS) + ENDED_SECONDS
    ended = wait_until(lambda: pid not in faults.cluster.evaluators(), most)
    if not ended:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        faults.problems.append("a stopped evaluator was not ended")
    found = faults.evidence.in_logs("box-*.log", NO_PROGRESS)
    if len(found) > before:
        faults.name("evaluators stopped", found[-1])
    return len(found) > before


def _unfit(faults: Faults, pattern: str) -> str:
    return faults.evidence.in_readiness("unfit", pattern)


def _lie(faults: Faults, kind: str, lie: Lie, named: Callable[[], str]) -> bool:
    """Let a box lie until it is named; False where it had no occasion to."""
    box = faults.cluster.add_liar(lie)
    try:
        said = wait_until(named, NAMED_SECONDS)
        told = said or faults.evidence.in_logs(f"{box.name}.log", "claimed, fence")
    finally:
        faults.cluster.remove(box)
    if said:
        faults.name(kind, said)
    elif told:
        faults.problems.append(f"{kind}: nothing has named it within {NAMED_SECONDS:g} s")
    return bool(told)


LIES: dict[str, tuple[Fault, float]] = {
    "other code": (other_code, 0.5),
    "programs exchanged": (exchanged_program, 0.7),
    "outcomes of other code": (mixed_outcomes, 0.7),
    "other data": (other_data, 0.7),
    "devices that do nothing": (idle_device, 0.7),
    "devices that break": (breaking_device, 0.7),
    "evaluators stopped": (hang, 2),
}
# Lies of one box each, which do not disturb each other.
TOGETHER = frozenset(LIES) - {"other code", "evaluators stopped"}
