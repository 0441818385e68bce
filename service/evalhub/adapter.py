"""The adapter that EvalHub starts for a benchmark: its suite as a job of an Assay service.

The Idempotency-Key follows from EvalHub's job: a provider that was killed and is started again finds the job
that it posted, and reports the same bits.

A user of EvalHub is a stranger: the job names models and data of the service, never a file, a function or an
address, and `model.url` is not read.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from evalhub.adapter import (
    DefaultCallbacks,
    FrameworkAdapter,
    JobCallbacks,
    JobPhase,
    JobResults,
    JobSpec,
    JobStatus,
    JobStatusUpdate,
    MessageInfo,
)
from evalhub.adapter.config import EvalHubMode

from assay.service.cli.output import detail_text
from assay.service.client import AssayClient
from assay.service.client.data_place import wrong
from assay.service.client.evaluation import EvaluationFailed, outcome_text
from assay.service.client.example_model import EXAMPLE
from assay.service.client.local import STOP_SECONDS, local_service
from assay.service.client.one_line import ONNX, PICKLES, WEIGHTS, Subject, model_spec
from assay.service.client.program_export import PROGRAM
from assay.service.contract.errors import AssayError
from assay.service.contract.problems import Problems, nearest
from assay.service.contract.results import Job
from assay.service.contract.specs import EvaluateSpec
from assay.service.contract.states import JobState
from assay.service.evalhub.cards import MAX_TEXT, job_results, warnings_of
from assay.service.files.state_lock import holder_of

LOG = logging.getLogger(__name__)
URL = "ASSAY_URL"
FILES = (PROGRAM, ONNX, WEIGHTS, *PICKLES)
MODELS = f"{EXAMPLE}, job:ID, checkpoint:NAME, or pulled weights such as timm:NAME or hf:ORG/NAME"
# Of a job's fields these are the benchmark's; all others are parameters.
PARAMETERS = tuple(sorted(EvaluateSpec.model_fields.keys() - {"kind", "name", "evaluations", "left_out"}))
POLL_SECONDS = 1.0


class AssayAdapter(FrameworkAdapter):
    """Runs suites; ASSAY_URL and ASSAY_KEY name the service, else one starts beside the job's file."""

    def run_benchmark_job(self, config: JobSpec, callbacks: JobCallbacks) -> JobResults:
        """Posts the job or finds it, and waits; AssayError: refused, failed, or the service is away."""
        progress = _Progress(callbacks)
        progress.tell(JobPhase.INITIALIZING, "the service is asked")
        with self.service() as client:
            job = client.submit(benchmark_spec(client, config), idempotency_key=_key(config))
            job = client.wait(job.id, callback=progress.of_job, poll_seconds=POLL_SECONDS)
            if job.state != JobState.SUCCEEDED:
                raise EvaluationFailed(f"job {job.id} {outcome_text(job)}")
            results = client.results(job.id)
            warned = [f"{one['code']} ({one['severity']}): {one['message']}" for one in warnings_of(results)]
            if config.exports is not None and config.exports.oci is not None:
                warned.append("exports.oci: this provider writes no artifact; the results are at the service")
            progress.tell(JobPhase.POST_PROCESSING, f"job {job.id} has its results", warned)
            return job_results(config, job, results, _named_service() and client.url)

    @contextmanager
    def service(self) -> Iterator[AssayClient]:
        """A client of the named service, else of a service that ends with the block."""
        if url := _named_service():
            with AssayClient(url) as client:
                yield client
            return
        if self.settings.mode == EvalHubMode.K8S:
            raise wrong(
                (URL,), "is not set", allowed="the address of a service: a pod's own ends with the pod"
            )
        state = self.settings.resolved_job_spec_path.resolve().parent / "assay-state"
        deadline = time.monotonic() + STOP_SECONDS
        while holder_of(state) is not None and time.monotonic() < deadline:  # of a provider that was killed
            time.sleep(POLL_SECONDS)
        with local_service(state) as client:
            yield client


class _Progress:
    """Reports a phase or a whole percent once."""

    def __init__(self, callbacks: JobCallbacks) -> None:
        self._callbacks = callbacks
        self._last: object = None

    def of_job(self, job: Job) -> None:
        """Reports the state of the Assay job."""
        begun = job.state not in (JobState.WAITING, JobState.QUEUED, JobState.STARTING)
        share = job.progress.share or 0.0
        text = f"job {job.id} is {job.state.value}, {int(100 * share)} %"
        if text != self._last and not job.state.terminal:
            self._last = text
            self.tell(JobPhase.RUNNING_EVALUATION if begun else JobPhase.LOADING_DATA, text, share=share)

    def tell(
        self, phase: JobPhase, text: str, warned: Sequence[str] = (), share: float | None = None
    ) -> None:
        """Reports a phase, with warnings."""
        LOG.info(text)
        warning = MessageInfo(message="; ".join(warned)[:MAX_TEXT], message_code="assay_warnings")
        self._callbacks.report_status(
            JobStatusUpdate(
                status=JobStatus.RUNNING,
                phase=phase,
                progress=share,
                message=MessageInfo(message=text, message_code="assay_progress"),
                warning_message=warning if warned else None,
            )
        )


def _named_service() -> str | None:
    return os.environ.get(URL, "").strip() or None


def _key(config: JobSpec) -> str:
    identity = json.dumps([config.id, config.provider_id, config.benchmark_id, config.benchmark_index])
    return f"evalhub-{hashlib.sha256(identity.encode()).hexdigest()}"


def benchmark_spec(client: AssayClient, config: JobSpec) -> dict[str, Any]:
    """The job of a benchmark: its suite, with EvalHub's parameters as further fields.

    InvalidSpec: a parameter is unknown or missing, or the model is not of the service.
    """
    given, problems = dict(config.parameters), Problems()
    for name in sorted(given.keys() - PARAMETERS):
        message, near = "is no parameter of a benchmark", nearest(name, PARAMETERS)
        problems.add(("parameters", name), message, given=given[name], allowed=PARAMETERS, nearest=near)
    if config.num_examples is not None and "limit" in given:
        message = "says the same as num_examples: leave one out"
        problems.add(("parameters", "limit"), message, given=given["limit"])
    elif config.num_examples is not None:
        given["limit"] = config.num_examples
    data = given.get("data")
    if isinstance(data, str):
        data = {"name": data}
    if not isinstance(data, Mapping) or not isinstance(data.get("name"), str):
        allowed = 'a data set of the service: "digits", or {"name": ..., "params": {...}}'
        problems.add(("parameters", "data"), "is no data set", given=given.get("data"), allowed=allowed)
        data = {}
    model = given.get("model")
    if model is None:
        _check_model(client, config.model.name, problems)
    problems.raise_if_any()
    if model is None:
        model = model_spec(client, Subject(config.model.name), data)
    name = f"EvalHub {config.benchmark_id}: {config.model.name}"[:200]
    suite = [{"suite": config.benchmark_id}]
    return {**given, "kind": "evaluate", "name": name, "model": model, "data": data, "evaluations": suite}


def _check_model(client: AssayClient, text: str, problems: Problems) -> None:
    sources = {"job", "checkpoint", *(one["pulled"] for one in client.catalog("model") if one.get("pulled"))}
    prefix, colon, _ = text.partition(":")
    if text == EXAMPLE or (colon and prefix in sources and not text.endswith(FILES)):
        return
    near = nearest(text, [EXAMPLE, *(f"{source}:{text.partition(':')[2]}" for source in sorted(sources))])
    allowed = f"{MODELS}; or parameters.model, an object as in a job"
    problems.add(("model", "name"), "is no model of the service", given=text, allowed=allowed, nearest=near)


def run() -> int:
    """Runs the benchmark of EVALHUB_JOB_SPEC_PATH; 0: reported, 1: failed and reported, 2: no job's file."""
    try:
        adapter = AssayAdapter()
    except (OSError, ValueError) as error:
        LOG.error("no job of EvalHub: %s", error)
        return 2
    callbacks = DefaultCallbacks.from_adapter(adapter)
    try:
        callbacks.report_results(adapter.run_benchmark_job(adapter.job_spec, callbacks))
    except Exception as error:
        text, code = f"{type(error).__name__}: {error}", "provider_failed"
        if isinstance(error, AssayError):
            text, code = "; ".join(map(detail_text, error.details)) or error.message, error.type
        failure = MessageInfo(message=text[:MAX_TEXT], message_code=code)
        callbacks.report_status(JobStatusUpdate(status=JobStatus.FAILED, error_message=failure))
        LOG.error(text)
        if not isinstance(error, AssayError | ImportError):
            raise
        return 1
    return 0
