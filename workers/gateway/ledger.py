"""The ledger of a node that sees neither database nor Redis: every call goes to the gateway.

An idle node makes one call a minute: its question for a shard waits there, for checks of uploads too. It
carries its sign of life and brings back what it must know. While the gateway is away, outcomes wait in the
node's spool.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, cast

from assay.service.contract.errors import InvalidState, NotFound
from assay.service.contract.findings.verdict_records import VerdictRecord
from assay.service.contract.fleet.worker_records import Requirements
from assay.service.contract.records import PlanWithShards, TrainingSpeed
from assay.service.contract.states import JobState
from assay.service.contract.stored_specs import Spec
from assay.service.contract.weights.stored_checkpoints import CheckpointRow
from assay.service.store.fleet.cordons import Cordon
from assay.service.store.fleet.fair_queue import Lane
from assay.service.store.fleet.lanes import OpenLane
from assay.service.store.fleet.workers import CounterKey
from assay.service.store.rows import Claim, Finished, OutcomeRow
from assay.workers.devices import device_classes
from assay.workers.gateway.connection import Gateway
from assay.workers.gateway.files import GatewayFiles
from assay.workers.identity import identity
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.ledger import Asked, Heartbeat
from assay.workers.supervision.outcome_spool import LEFT, SPOOL, Spool

WAIT_SECONDS = 45.0
SOON_SECONDS = 5.0  # With a warm model, whose job may be canceled, and while data for other lanes come
STANDING_SECONDS = 10.0
BETWEEN_SECONDS = 2.0  # Between two questions
MAX_JOBS = 100


class NodeWait:
    """The question of a node's supervisor: it waits at the gateway for the supervisor of checks too."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._asks = self._rung = False
        self._asked_at = float("-inf")  # End of the last question that found no shard
        self.standing: dict[str, Any] = {}

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """While the question is at the gateway."""
        self._asks = True
        try:
            yield
        finally:
            with self._changed:
                self._asks = False
                self._changed.notify()

    def answered(self, answer: Mapping[str, Any]) -> None:
        """Takes an answer: it may say that there is a check."""
        with self._changed:
            self.standing, self._rung = answer["standing"], self._rung or answer.get("checks", False)
            self._asked_at = float("-inf") if answer["claim"] is not None else time.monotonic()

    def waits(self, seconds: float) -> bool | None:
        """Whether a check has come within so many seconds; None: the other supervisor asks no longer."""
        until = time.monotonic() + seconds
        with self._changed:
            while not self._rung and (now := time.monotonic()) < until:
                if not self._asks and now - self._asked_at > BETWEEN_SECONDS:
                    return None
                self._changed.wait(min(BETWEEN_SECONDS, until - now))
            rung, self._rung = self._rung, False
            return rung


class GatewayLedger:
    """A `WorkLedger` over a gateway, for one supervisor.

    `asks`: of a supervisor that waits for its node's checks too; `waits`: of the supervisor of checks.
    """

    remote = True

    def __init__(
        self,
        gateway: Gateway,
        files: GatewayFiles,
        wait_seconds: float = WAIT_SECONDS,
        *,
        asks: NodeWait | None = None,
        waits: NodeWait | None = None,
    ) -> None:
        self._gateway, self._files, self._wait_seconds = gateway, files, wait_seconds
        self._asks, self._waits = asks, waits
        self._name, self._identity, self._devices = "", identity()["digest"], [*device_classes()]
        self._beat: dict[str, Any] | None = None  # to be sent
        self._last: dict[str, Any] | None = None
        self._beaten = False
        self._standing: dict[str, Any] = {}
        self._stood_at = float("-inf")
        self._tokens: dict[str, str] = {}  # of served jobs, oldest first
        self._reported = ""  # token of the claim that has reported progress
        self._progress: dict[str, Any] | None = None  # to be sent with its next renewal

    def beat(self, beat: Heartbeat) -> None:
        """Kept for the next call that carries it, of the supervisor or of a running shard's renewal."""
        self._beat = self._last = asdict(beat)
        if not self._beaten:  # by its release the service may admit the worker
            self._stood_at = float("-inf")

    def gone(self, worker: str) -> None:
        """As `WorkLedger`."""
        self._gateway.call("/gone", {"worker": worker})

    def cordon(self, name: str) -> Cordon | None:
        """As `WorkLedger`, at most some seconds old."""
        self._name = name
        found = self._stand()["cordon"]
        return None if found is None else Cordon(**found)

    def admits(self, digest: str) -> bool:
        """As `WorkLedger`, after a sign of life."""
        return bool(self._stand()["admitted"])

    def lanes(self) -> Sequence[OpenLane]:
        """As `WorkLedger`, as of the last standing."""
        found = self._stand(old=True)["lanes"]
        return [OpenLane(Lane(**one["lane"]), one["stated"]) for one in found]

    def published(self) -> str:
        """As `WorkLedger`, as of the last standing."""
        return str(self._stand(old=True).get("published", ""))

    def unmet(self, device: str, requirements: str) -> bool:
        """As `WorkLedger`."""
        found = self._gateway.call("/unmet", {"device": device, "requirements": requirements})
        return bool(found["unmet"])

    def online(self, device: str, *, devices: int, besides: str) -> int:
        """As `WorkLedger`."""
        body = {"device": device, "devices": devices, "besides": besides}
        return int(self._gateway.call("/online", body)["online"])

    def being_planned(self, device_classes: Sequence[str]) -> bool:
        """As `WorkLedger`, as of the last standing."""
        return bool(self._stand(old=True)["planning"])

    def add(self, amounts: Mapping[CounterKey, float]) -> None:
        """As `WorkLedger`."""
        told = [
            {"name": name, "labels": dict(labels), "amount": amount}
            for (name, labels), amount in amounts.items()
        ]
        if told:
            self._gateway.call("/counters", {"counters": told})

    def expire_own(self, worker: str) -> None:
        """As `WorkLedger`."""
        self._gateway.call("/expire", {"worker": worker})

    def claim(self, asked: Asked, *, changing: bool = False) -> Claim | None:
        """As `WorkLedger`; waits there for a shard."""
        soon = changing or asked.warm_job is not None
        wait = min(SOON_SECONDS, self._wait_seconds) if soon else self._wait_seconds
        if self._waits is not None and (rung := self._waits.waits(wait)) is not None:
            if not rung:
                self._stood(self._waits.standing)
                return None
            wait = 0.0
        body = {
            **asdict(asked),
            "name": self._name,
            "lanes": [lane._asdict() for lane in asked.lanes],
            "seen": self._standing.get("version", ""),
            "wait_seconds": wait,
            "beat": self._sign(),
            "checks": self._asks is not None,
        }
        with contextlib.nullcontext() if self._asks is None else self._asks.asking():
            answer = self._gateway.call("/claim", body, wait=wait)
            if self._asks is not None:
                self._asks.answered(answer)
        self._stood(answer["standing"])
        if answer["claim"] is None:
            return None
        claim = Claim(**answer["claim"])
        self._tokens = {**dict([*self._tokens.items()][-MAX_JOBS:]), claim.job_id: claim.token}
        return claim

    def renew(self, claim: Claim, lease_seconds: float) -> Literal["run", "cancel", "lost"]:
        """As `WorkLedger`, with a sign of life and the last progress."""
        progress = self._progress if claim.token == self._reported else None
        body = {"token": claim.token, "lease_seconds": lease_seconds, "beat": self._sign() or self._last}
        answer = self._gateway.call("/renew", {**body, "progress": progress})
        if self._progress is progress:  # no newer report has come
            self._progress = None
        if "cordon" in answer and self._standing:  # else the next question for it would be a call
            self._stood({**self._standing, "cordon": answer["cordon"]})
        return cast(Literal["run", "cancel", "lost"], answer["verdict"])

    def progress(
        self, claim: Claim, done: int, total: int | None, message: str | None, speed: TrainingSpeed
    ) -> None:
        """As `WorkLedger`: a claim's first report at once, a later report with the next renewal."""
        said = {"done": done, "total": total, "message": message, "speed": speed}
        if claim.token == self._reported:
            self._progress = said
            return
        self._reported, self._progress = claim.token, None
        self._tell("/progress", claim, **said)

    def checkpoint(self, claim: Claim, step: int) -> None:
        """As `WorkLedger`."""
        self._tell("/checkpoint", claim, step=step)

    def limit(self, claim: Claim, seconds: float) -> None:
        """As `WorkLedger`."""
        self._tell("/limit", claim, seconds=seconds)

    def finish(self, claim: Claim, outcome: OutcomeRow) -> Finished | None:
        """As `WorkLedger`, after its files."""
        row = asdict(outcome)
        del row["evaluation"], row["number"]  # the token has them
        # Of a shard that is over the gateway takes no files; what became of it `/finish` says again.
        with contextlib.suppress(InvalidState):
            self._files.send(claim, outcome.extra)
        found = self._tell("/finish", claim, **row)["finished"]
        self._files.forget(claim, outcome.extra)
        return None if found is None else Finished(**found)

    def adrift(self, claim: Claim) -> bool:
        """As `WorkLedger`."""
        return bool(self._tell("/adrift", claim)["adrift"])

    def finish_plan(
        self, claim: Claim, plan: PlanWithShards, requirements: Sequence[Requirements], repeat: float
    ) -> bool:
        """As `WorkLedger`."""
        told = {"plan": plan, "requirements": list(requirements), "repeat": repeat}
        return bool(self._tell("/plan", claim, **told)["taken"])

    def checked(self, claim: Claim, verdict: VerdictRecord, error: str | None) -> bool:
        """As `WorkLedger`."""
        return bool(self._tell("/checked", claim, verdict=verdict, error=error)["taken"])

    def canceled(self, claim: Claim) -> None:
        """As `WorkLedger`."""
        self._tell("/canceled", claim)

    def release(self, claim: Claim, message: str = "") -> None:
        """As `WorkLedger`."""
        self._tell("/release", claim, message=message, fault=False)

    def device_fault(self, claim: Claim, message: str) -> None:
        """As `WorkLedger`."""
        self._tell("/release", claim, message=message, fault=True)

    def fail(
        self, claim: Claim, error_type: str, message: str, *, retry: bool, fingerprint: str | None
    ) -> JobState:
        """As `WorkLedger`."""
        told = {"error_type": error_type, "message": message, "retry": retry, "fingerprint": fingerprint}
        return JobState(self._tell("/fail", claim, **told)["state"])

    def log(self, claim: Claim, message: str) -> None:
        """As `WorkLedger`."""
        self._tell("/log", claim, message=message)

    def is_stopped(self, job_id: str) -> bool:
        """As `WorkLedger`."""
        token = self._tokens.get(job_id)
        return token is not None and bool(self._gateway.call("/stopped", {"token": token})["stopped"])

    def spec_of(self, claim: Claim, job_id: str) -> Spec:
        """As `WorkLedger`."""
        specs: dict[str, Spec] = self._tell("/sources", claim)["specs"]
        if job_id not in specs:
            raise NotFound(f"there is no job {job_id}")
        return specs[job_id]

    def needed_checkpoints(self, claim: Claim) -> Mapping[str, CheckpointRow]:
        """As `WorkLedger`."""
        found = self._tell("/sources", claim)["checkpoints"]
        return {name: CheckpointRow(**row) for name, row in found.items()}

    def artifact_names(self, claim: Claim) -> set[str]:
        """As `WorkLedger`."""
        return {*self._tell("/sources", claim)["artifacts"]}

    def complete(self, claim: Claim, finished: Finished) -> None:
        """The service merges."""

    def _sign(self) -> dict[str, Any] | None:
        """The sign of life to be sent, if any; a lost one is followed by another."""
        beat, self._beat = self._beat, None
        self._beaten = self._beaten or beat is not None
        return beat

    def _tell(self, call: str, claim: Claim, **facts: Any) -> Any:
        return self._gateway.call(call, {"token": claim.token, **facts})

    def _stand(self, *, old: bool = False) -> dict[str, Any]:
        is_due = not old and time.monotonic() - self._stood_at > STANDING_SECONDS
        if is_due or not self._standing:
            me = {"name": self._name, "identity": self._identity, "device_classes": self._devices}
            answer = self._gateway.call("/standing", {**me, "beat": self._sign()})
            self._stood(answer)
        return self._standing

    def _stood(self, standing: dict[str, Any]) -> None:
        self._standing, self._stood_at = standing, time.monotonic()


def left_spools(gateway: Gateway, settings: WorkerSettings, is_ours: Callable[[Path], bool]) -> list[Spool]:
    """Outcomes of slots that this node's box no longer has (`workers.nodes`)."""
    named = [Path(one) for one in os.environ.get(LEFT, "").split(os.pathsep) if one]
    places = [settings.model_copy(update={"state": one}) for one in named if is_ours(one)]
    return [
        Spool(one.state / SPOOL, GatewayLedger(gateway, GatewayFiles(gateway, one)), "") for one in places
    ]
