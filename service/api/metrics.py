"""Route of metrics, for Prometheus.

Three sources: the database (one query for all requests within two seconds), the sums that the workers keep
there, and this process's own counters. A database that is away, or does not answer in time, makes
`assay_database_up` 0 and leaves the rest.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooSlow
from itertools import accumulate
from pathlib import Path
from typing import Any

from fastapi import Request, Response
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily as Counter
from prometheus_client.metrics_core import GaugeMetricFamily as Gauge
from prometheus_client.metrics_core import HistogramMetricFamily as Histogram
from prometheus_client.metrics_core import InfoMetricFamily as Info
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from assay.service import features
from assay.service.api.caller import CallerDep
from assay.service.api.deps import StrictRouter
from assay.service.api.errors import documented
from assay.service.connection_guard import ConnectionGuard
from assay.service.contract.states import JobState, ShardState
from assay.service.settings import Settings
from assay.service.store.fleet.workers import SHARD_BOUNDS
from assay.service.store.live import redis_answers
from assay.service.store.overview import WITHHELD, Overview, WorkerRow
from assay.service.store.store import Store
from assay.service.telemetry import BOUNDS, Requests

FRESH_SECONDS = 2.0
MAX_SHARE = 0.05
MAX_LABEL = 500  # Characters of what a worker says of its data.
SCRAPE_TIMEOUT_SECONDS = 3.0
DEVICES = ("auto", "cpu", "cuda")
# Counters of the workers and of features, with their descriptions; `store/fleet/workers.py` has the sums.
_WORKERS: dict[str, Any] = json.loads(Path(__file__).with_name("counters.json").read_text(encoding="utf-8"))
COUNTED: dict[str, str] = {name: one["text"] for name, one in _WORKERS.items()}
# Labels of what workers count, by the name of the sum
LABELS: dict[str, frozenset[str]] = {
    "assay_shard_seconds_sum": frozenset({"device", "kind"}),
    "assay_shard_seconds_bucket": frozenset({"device", "kind", "le"}),
    **{f"{name}_total": frozenset(one["labels"]) for name, one in _WORKERS.items()},
}
for _module in features.modules("delivery"):
    COUNTED.update(_module.COUNTED)

router = StrictRouter(tag="health")


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={
        200: {
            "description": "Prometheus' text format; OpenMetrics for who asks for it",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        },
        **documented(),
    },
)
async def metrics(request: Request, caller: CallerDep) -> Response:
    """Current state and counters so far; answers also while the database is away.

    The queues of single tenants are for keys with the scope `admin`.
    """
    everything = caller.view.everything
    numbers: Numbers = request.app.state.numbers
    streams = request.app.state.feed.streams  # Counted here, on the event loop that the streams belong to.
    encode, media_type = choose_encoder(request.headers.get("accept", ""))
    text = await run_in_threadpool(lambda: encode(numbers.registry(streams, tenants=everything)))
    return Response(text, headers={"Content-Type": media_type})


class Watch:
    """Cached overview of the database: one query at a time, with a short time limit."""

    def __init__(self, opener: Callable[[], Store], patience: float = SCRAPE_TIMEOUT_SECONDS) -> None:
        self._opener = opener
        self._patience = patience
        self._lock = threading.Lock()
        self._executor = ThreadPoolExecutor(1, "metrics")
        self._pending: Future[Overview] | None = None
        self._asked_at = float("-inf")
        self._took = 0.0

    def look(self) -> Overview | None:
        """The overview, a few seconds old at most; None when the database does not answer."""
        # A large queue takes a while to read, and is then kept longer: it has `MAX_SHARE` of a core at most.
        with self._lock:
            old = time.monotonic() - self._asked_at > max(FRESH_SECONDS, self._took / MAX_SHARE)
            if self._pending is None or (self._pending.done() and old):
                self._pending = self._executor.submit(self._read)
                self._asked_at = time.monotonic()
            pending = self._pending
        try:
            return pending.result(self._patience)
        except (SQLAlchemyError, TooSlow):
            return None

    def _read(self) -> Overview:
        begin = time.monotonic()
        try:
            return self._opener().overview()
        finally:
            self._took = time.monotonic() - begin

    def close(self) -> None:
        """Lets the thread end."""
        self._executor.shutdown(wait=False, cancel_futures=True)


class Numbers:
    """All metrics that one application shows to Prometheus."""

    def __init__(
        self,
        settings: Settings,
        version: str,
        requests: Requests,
        opener: Callable[[], Store],
        connections: ConnectionGuard,
    ) -> None:
        self._settings = settings
        self._version = version
        self._requests = requests
        self._connections = connections
        self._watch = Watch(opener)

    def close(self) -> None:
        """Ends the background thread."""
        self._watch.close()

    def registry(self, streams: int, *, tenants: bool = False) -> CollectorRegistry:
        """A registry with the present values."""
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        registry.register(_Fixed([*self._process(streams), *self._shared(tenants)]))
        return registry

    def _process(self, streams: int) -> Iterator[Metric]:
        yield Info("assay", "The program that answers.", {"version": self._version})
        yield Gauge("assay_event_streams", "Open event streams of this process.", streams)
        yield Gauge("assay_connections", "Open connections of this process.", self._connections.count)
        text = "Connections of this process ended by a limit, by reason."
        ended = Counter("assay_connections_refused", text, labels=["reason"])
        for reason, count in sorted(self._connections.refused.copy().items()):
            ended.add_metric([reason], count)
        yield ended
        answers = Counter(
            "assay_http_requests", "Answers of this process.", labels=["route", "method", "status"]
        )
        for labels, count in sorted(self._requests.responses().items()):
            answers.add_metric(labels, count)
        yield answers
        name, text = "assay_http_request_seconds", "Time until an answer of this process began."
        latency = Histogram(name, text, labels=["route", "method"])
        for key, one in sorted(self._requests.latencies().items()):
            buckets = zip([*map(str, BOUNDS), "+Inf"], accumulate(one.counts), strict=True)
            latency.add_metric(key, list(buckets), one.seconds)
        yield latency

    def _shared(self, tenants: bool) -> Iterator[Metric]:
        if self._settings.redis:
            up = redis_answers(self._settings.redis)
            yield Gauge("assay_redis_up", "Whether Redis answers.", int(up))
        yield from _disk(self._settings)
        overview = self._watch.look()
        yield Gauge("assay_database_up", "Whether the database answers.", int(overview is not None))
        if overview is not None:
            yield from _queue(overview)
            if tenants:
                yield from _tenants(overview)
            yield from _workers(overview.workers)
            yield from _counted(overview)


class _Fixed(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def _disk(settings: Settings) -> Iterator[Metric]:
    try:
        usage = shutil.disk_usage(settings.state)
    except OSError:  # not there yet, or a share that is away
        return
    yield Gauge("assay_state_free_bytes", "Free space where the state folder is.", usage.free)
    yield Gauge("assay_state_size_bytes", "Size of the file system of the state folder.", usage.total)


def _queue(overview: Overview) -> Iterator[Metric]:
    jobs = Gauge("assay_jobs", "Jobs by state.", labels=["state"])
    for state in JobState:
        jobs.add_metric([state.value], overview.jobs.get(state.value, 0))
    yield jobs
    shards = Gauge("assay_shards", "Shards by device class and state.", labels=["device", "state"])
    for device in DEVICES:
        for which in (ShardState.QUEUED.value, ShardState.RUNNING.value, WITHHELD):
            shards.add_metric([device, which], overview.shards.get((device, which), 0))
    yield shards
    text = "How long the first queued job has waited."
    yield Gauge("assay_queue_oldest_seconds", text, overview.oldest_queued_seconds)
    text = "How long the oldest queued shard has waited; of running jobs too."
    yield Gauge("assay_shard_queue_oldest_seconds", text, overview.longest_queued_seconds)
    text = "Longest time since the progress of a running shard."
    yield Gauge("assay_shard_slowest_seconds", text, overview.slowest_seconds)


def _tenants(overview: Overview) -> Iterator[Metric]:
    jobs = Gauge("assay_tenant_queued_jobs", "Queued jobs of the tenants with most.", labels=["tenant"])
    text = "How long a tenant's first queued job has waited."
    oldest = Gauge("assay_tenant_queue_oldest_seconds", text, labels=["tenant"])
    for queue in overview.queues:
        jobs.add_metric([queue.tenant], queue.jobs)
        oldest.add_metric([queue.tenant], queue.oldest_seconds)
    yield from (jobs, oldest)


def _workers(workers: Iterable[WorkerRow]) -> Iterator[Metric]:
    workers = list(workers)
    online = Gauge(
        "assay_workers_online", "Workers that could take a shard for a device class.", labels=["device"]
    )
    for device in DEVICES:
        able = [one for one in workers if one.in_service]
        serving = [one for one in able if device == "auto" or device in one.device_classes]
        online.add_metric([device], len(serving))
    yield online
    yield _out_of_service(workers)
    text = "Device classes that a worker does not serve since they failed its self-test."
    yield _said("assay_worker_unfit", text, "device", ((one, one.gauges.get("unfit", {})) for one in workers))
    text = "Data sets of a worker that differ from a job's plan, with both hashes."
    told = ((one, one.gauges.get("other_data", [])) for one in workers)
    yield _said("assay_worker_other_data", text, "data", told)
    labels = ["host", "worker", "gpu"]
    memory = {
        "used": Gauge("assay_gpu_memory_used_bytes", "Memory of a GPU in use.", labels=labels),
        "reserved": Gauge("assay_gpu_memory_reserved_bytes", "Reserved by the evaluator.", labels=labels),
        "total": Gauge("assay_gpu_memory_total_bytes", "Memory of a GPU.", labels=labels),
    }
    for one in workers:
        gpu: object = one.gauges.get("gpu")
        if isinstance(gpu, Mapping):  # From the evaluator: a wrong report must not take all else with it.
            for key, family in memory.items():
                if isinstance(gpu.get(key), int):
                    place = [one.host, one.worker, str(gpu.get("name", ""))[:100]]
                    family.add_metric(place, gpu[key])
    yield from memory.values()


def _out_of_service(workers: Iterable[WorkerRow]) -> Metric:
    text = "Workers that take no work: cordoned by an administrator, of an unknown identity, or faulty."
    family = Gauge("assay_workers_out_of_service", text, labels=["by"])
    out = [one for one in workers if not one.in_service]
    cordoned = sum(one.cordoned for one in out)
    unknown = sum(one.unknown and not one.cordoned for one in out)
    family.add_metric(["administrator"], cordoned)
    family.add_metric(["identity"], unknown)
    family.add_metric(["worker"], len(out) - cordoned - unknown)
    return family


def _said(name: str, text: str, label: str, told: Iterable[tuple[WorkerRow, Iterable[str]]]) -> Metric:
    family = Gauge(name, text, labels=["host", "worker", label])
    for worker, values in told:
        for value in values:
            family.add_metric([worker.host, worker.worker, value[:MAX_LABEL]], 1)
    return family


def _counted(overview: Overview) -> Iterator[Metric]:
    families: dict[str, Counter] = {}
    seconds: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    sums: dict[tuple[str, ...], float] = {}
    for (name, labels), value in sorted(overview.counters.items()):
        given = dict(labels)
        if given.keys() != LABELS.get(name, given.keys()):  # of another version
            continue
        if name == "assay_shard_seconds_sum":
            sums[given["device"], given["kind"]] = value
        elif name == "assay_shard_seconds_bucket":
            seconds[given["device"], given["kind"]][given["le"]] = value
        elif (base := name.removesuffix("_total")) in COUNTED:
            if base not in families:
                families[base] = Counter(base, COUNTED[base], labels=list(given))
            families[base].add_metric(list(given.values()), value)
    for base, text in COUNTED.items():
        yield families.get(base) or Counter(base, text)
    yield _shard_seconds(seconds, sums)


def _shard_seconds(
    seconds: Mapping[tuple[str, ...], Mapping[str, float]], sums: Mapping[tuple[str, ...], float]
) -> Metric:
    text = "How long workers held their shards, failed and lost shards too."
    histogram = Histogram("assay_shard_seconds", text, labels=["device", "kind"])
    bounds = [*map(str, SHARD_BOUNDS), "+Inf"]
    for labels, found in seconds.items():
        counts: list[Any] = list(accumulate(found.get(bound, 0.0) for bound in bounds))
        histogram.add_metric(labels, list(zip(bounds, counts, strict=True)), sums.get(labels, 0.0))
    return histogram
