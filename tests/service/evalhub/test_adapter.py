from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from evalhub.adapter import DefaultCallbacks, JobPhase, JobSpec, JobStatus

from assay.service.client.notebook_tables import JobView
from assay.service.contract.errors import InvalidSpec
from assay.service.contract.results import Results
from assay.service.evalhub import adapter as adapters
from assay.service.evalhub import cli
from assay.service.evalhub.adapter import AssayAdapter, benchmark_spec, run
from tests.service.evalhub.conftest import Callbacks, attack, job_of, results_of

Config = Callable[..., JobSpec]
ROWS = [
    attack("pgd", "8/255", 0.5, warnings=[{"code": "subset", "severity": "note", "message": "20 of 360"}])
]
RUNNING = {
    "state": "running",
    "progress": {"done": 1, "total": 4, "unit": "examples", "eta_seconds": 1, "share": 0.25},
}


class Service:
    """A client of a service that has one job."""

    url = "http://assay.example"

    def __init__(self, end: str = "succeeded") -> None:
        self.end = end
        self.posted: list[tuple[str | None, dict[str, Any]]] = []

    def catalog(self, kind: str) -> list[dict[str, Any]]:
        assert kind == "model"
        return [{"name": "symvit"}, {"name": "timm", "pulled": "timm", "tasks": ["classification"]}]

    def component(self, kind: str, name: str) -> dict[str, Any]:
        return {"kind": kind, "name": name, "tasks": ["classification"]}

    def checkpoint(self, name: str) -> Any:
        return type("Checkpoint", (), {"model": {"name": "symvit"}})

    def submit(self, spec: dict[str, Any], *, idempotency_key: str | None = None) -> JobView:
        self.posted.append((idempotency_key, spec))
        return job_of(ROWS, state="queued")

    def wait(self, job: str, *, callback: Callable[[JobView], None], poll_seconds: float) -> JobView:
        error = (
            None if self.end == "succeeded" else {"type": "out_of_memory", "message": "8 GB were not enough"}
        )
        states = [job_of(ROWS, state="queued", progress={**RUNNING["progress"], "share": None})]
        states += [
            job_of(ROWS, **RUNNING),
            job_of(ROWS, **RUNNING),
            job_of(ROWS, state=self.end, error=error),
        ]
        for state in states:
            callback(state)
        return states[-1]

    def results(self, job: str) -> Results:
        return results_of(*ROWS)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    """The service that adapters reach."""
    service = Service()

    @contextmanager
    def reached(self: AssayAdapter) -> Iterator[Service]:
        yield service

    monkeypatch.setattr(AssayAdapter, "service", reached)
    return service


@pytest.fixture
def callbacks(monkeypatch: pytest.MonkeyPatch) -> Callbacks:
    """What `run` tells EvalHub."""
    callbacks = Callbacks()
    monkeypatch.setattr(DefaultCallbacks, "from_adapter", lambda adapter: callbacks)
    return callbacks


def started(monkeypatch: pytest.MonkeyPatch, path: Path) -> int:
    monkeypatch.setenv("EVALHUB_JOB_SPEC_PATH", str(path))
    return run()


def refused(config: JobSpec) -> list[str]:
    with pytest.raises(InvalidSpec) as error:
        benchmark_spec(Service(), config)  # type: ignore[arg-type]
    return [".".join(map(str, detail.loc)) for detail in error.value.details]


def test_a_benchmark_is_its_suite_with_the_parameters(config: Config) -> None:
    spec = benchmark_spec(Service(), config({"data": "digits", "seed": 3}))  # type: ignore[arg-type]
    assert spec == {
        "data": {"name": "digits"}, "seed": 3, "limit": 20, "kind": "evaluate",
        "name": "EvalHub quick: checkpoint:net", "evaluations": [{"suite": "quick"}],
        "model": {"name": "symvit", "weights": {"checkpoint": "net"}},
    }  # fmt: skip


def test_a_model_may_be_an_object_as_in_a_job(config: Config) -> None:
    model = {"name": "symvit", "params": {"depth": 1}}
    found = benchmark_spec(Service(), config({"data": "digits", "model": model}))  # type: ignore[arg-type]
    assert found["model"] == model


def test_all_faults_come_at_once(config: Config) -> None:
    given = {"dta": "digits", "kind": "train", "evaluations": [], "limit": 3}
    assert refused(config(given, model={"name": "exmple", "url": "http://x"})) == [
        "parameters.dta", "parameters.evaluations", "parameters.kind", "parameters.limit", "parameters.data",
        "model.name",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "net.pt2",
        "/etc/net.safetensors",
        "timm:net.pt2",
        "job:net.onnx",
        "os:system",
        "nets.py:build",
        "{}",
        "x",
    ],
)
def test_no_file_and_no_function_is_a_model(config: Config, name: str) -> None:
    assert refused(config(model={"name": name, "url": ""})) == ["model.name"]


def test_a_restarted_provider_posts_under_the_same_key(
    monkeypatch: pytest.MonkeyPatch, service: Service, callbacks: Callbacks, written: Callable[..., Path]
) -> None:
    for index in (0, 0, 1):
        assert started(monkeypatch, written(benchmark_index=index)) == 0
    (first, body), (again, same), (other, _) = service.posted
    assert (first, body) == (again, same)
    assert other != first
    assert callbacks.results[0].model_dump_json() == callbacks.results[1].model_dump_json()


def test_phases_and_whole_percents_are_told_once(
    monkeypatch: pytest.MonkeyPatch, service: Service, callbacks: Callbacks, written: Callable[..., Path]
) -> None:
    assert started(monkeypatch, written()) == 0
    assert [(one.phase, one.progress) for one in callbacks.told] == [
        (JobPhase.INITIALIZING, None), (JobPhase.LOADING_DATA, 0.0), (JobPhase.RUNNING_EVALUATION, 0.25),
        (JobPhase.POST_PROCESSING, None),
    ]  # fmt: skip
    warned = callbacks.told[-1].warning_message
    assert warned is not None
    assert warned.message == "subset (note): 20 of 360"


def test_a_failed_job_fails_the_benchmark_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, service: Service, callbacks: Callbacks, written: Callable[..., Path]
) -> None:
    service.end = "failed"
    assert started(monkeypatch, written()) == 1
    last = callbacks.told[-1]
    assert last.status == JobStatus.FAILED
    assert last.error_message is not None
    assert last.error_message.message.endswith("failed: out_of_memory: 8 GB were not enough")
    assert not callbacks.results


def test_bad_parameters_fail_the_benchmark_in_our_words(
    monkeypatch: pytest.MonkeyPatch, service: Service, callbacks: Callbacks, written: Callable[..., Path]
) -> None:
    assert started(monkeypatch, written({})) == 1
    last = callbacks.told[-1].error_message
    assert last is not None
    assert last.message_code == "invalid_spec"
    assert last.message.startswith("parameters.data: is no data set")


def test_a_defect_is_told_to_evalhub_and_raised(
    monkeypatch: pytest.MonkeyPatch, service: Service, callbacks: Callbacks, written: Callable[..., Path]
) -> None:
    monkeypatch.setattr(service, "results", lambda job: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        started(monkeypatch, written())
    assert callbacks.told[-1].status == JobStatus.FAILED


def test_without_a_job_of_evalhub_nothing_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert started(monkeypatch, tmp_path / "none.json") == 2


@contextmanager
def local(state: Path) -> Iterator[Path]:
    yield state


def test_without_an_address_a_service_starts_beside_the_jobs_file(
    monkeypatch: pytest.MonkeyPatch, written: Callable[..., Path]
) -> None:
    monkeypatch.delenv("ASSAY_URL", raising=False)
    monkeypatch.setattr(adapters, "local_service", local)
    path = written()
    with AssayAdapter(job_spec_path=str(path)).service() as found:
        assert found == path.resolve().parent / "assay-state"


def test_a_killed_providers_service_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, written: Callable[..., Path]
) -> None:
    monkeypatch.delenv("ASSAY_URL", raising=False)
    monkeypatch.setattr(adapters, "local_service", local)
    left, waited = [True, True, False], []
    monkeypatch.setattr(adapters, "holder_of", lambda state: left.pop(0) or None)
    monkeypatch.setattr(adapters.time, "sleep", waited.append)
    with AssayAdapter(job_spec_path=str(written())).service():
        assert len(waited) == 2


def test_in_a_pod_the_address_must_be_given(
    monkeypatch: pytest.MonkeyPatch, callbacks: Callbacks, written: Callable[..., Path]
) -> None:
    monkeypatch.delenv("ASSAY_URL", raising=False)
    monkeypatch.setenv("EVALHUB_MODE", "k8s")
    assert started(monkeypatch, written()) == 1
    last = callbacks.told[-1].error_message
    assert last is not None
    assert last.message.startswith("ASSAY_URL: is not set")


def test_without_the_extra_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "evalhub", None)
    assert cli.main() == 2
    said = "`assay-evalhub` needs EvalHub's SDK and PyYAML: pip install 'assay-robustness[evalhub]'"
    assert said in capsys.readouterr().err
