"""Runs of MLflow and Weights & Biases, one for each job, written with the caller's own credentials.

MLflow finds a run by its tag `assay.job`, Weights & Biases by the run's id, the job's.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from assay.service.contract.states import JobState
from assay.service.reports.run_record import RunRecord

TrackerName = Literal["mlflow", "wandb"]
DEFAULT_EXPERIMENT = "assay"
MAX_PARAMS, MAX_METRICS = 100, 1000  # MLflow's in one call
MAX_LABEL = 64
TRACKING = "MLFLOW_TRACKING_URI"
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
ADDRESSES = (
    "http://HOST:PORT, https://HOST, sqlite:///FILE (sqlite:////FILE from the root), a URL of postgresql,"
    " mysql or mssql, databricks"
)
ENDED: Mapping[JobState, str] = {
    JobState.SUCCEEDED: "FINISHED",
    JobState.FAILED: "FAILED",
    JobState.TIMED_OUT: "FAILED",
    JobState.CANCELED: "KILLED",
}


class TrackerError(Exception):
    """The tracker refused or is unreachable; its message."""


class Tracker(Protocol):
    """Takes runs; `where`: MLflow's tracking URI or Weights & Biases' project."""

    where: str

    def write(self, record: RunRecord, files: Mapping[str, bytes]) -> str:
        """Makes or updates the run of a job; returns its id there."""
        ...

    def close(self) -> None:
        """Ends what is open."""
        ...


def tracker(name: TrackerName, *, uri: str | None, project: str | None, entity: str | None) -> Tracker:
    """The tracker of this name."""
    if name == "mlflow":
        if entity is not None:
            raise ValueError("entity is for wandb; mlflow has an address (tracking URI) and a project")
        check_tracking_uri(uri)
        return MlflowTracker(uri, project or DEFAULT_EXPERIMENT)
    if name == "wandb":
        if uri is not None:
            raise ValueError(
                "a tracking URI is for mlflow; wandb has WANDB_BASE_URL, an entity and a project"
            )
        return WandbTracker(project or DEFAULT_EXPERIMENT, entity)
    raise ValueError(f"there is no tracker {name!r}; allowed: mlflow, wandb")


def check_tracking_uri(uri: str | None) -> None:
    """Refuse a tracking URI, given or the environment's, that MLflow refuses at length."""
    field, given = ("tracking_uri", uri) if uri is not None else (TRACKING, os.environ.get(TRACKING))
    if not given:
        return
    scheme, colon, rest = given.partition(":")
    database = scheme.partition("+")[0]
    if scheme in ("http", "https"):
        usable = bool(urlsplit(given).hostname)
    elif database in DATABASES:
        usable = rest.startswith("///") if database == "sqlite" else rest.startswith("//")
    else:
        usable = scheme in ("databricks", "databricks-uc", "file") or not colon
    if not usable:
        hint = f"; did you mean 'http://{given}'?" if rest.partition("/")[0].isdecimal() else ""
        raise ValueError(f"{field} is {given!r}; allowed: {ADDRESSES}{hint}")
    folder = scheme == "file" or (not colon and not scheme.startswith("databricks"))
    if folder and os.environ.get("MLFLOW_ALLOW_FILE_STORE", "").lower() not in ("true", "1"):
        raise ValueError(
            f"{field} is {given!r}, a folder, which MLflow takes with MLFLOW_ALLOW_FILE_STORE=true alone;"
            f" allowed: {ADDRESSES}"
        )


class MlflowTracker:
    """An experiment of MLflow."""

    def __init__(self, uri: str | None, experiment: str) -> None:
        try:
            from mlflow.exceptions import MlflowException
            from mlflow.tracking import MlflowClient
        except ImportError as error:
            raise ImportError('MLflow is not installed: pip install "assay-robustness[mlflow]"') from error
        self._failure = MlflowException
        with self._reaching():
            self._client = MlflowClient(tracking_uri=uri)
            self.where = _from_the_root(self._client.tracking_uri)
            found = self._client.get_experiment_by_name(experiment)
            if found is not None and found.lifecycle_stage == "deleted":
                raise TrackerError(
                    f"the MLflow experiment {experiment!r} is deleted: restore it, or name another"
                )
            self._experiment = (
                self._client.create_experiment(experiment) if found is None else found.experiment_id
            )

    def write(self, record: RunRecord, files: Mapping[str, bytes]) -> str:
        """Makes or updates a job's run; only what differs is written."""
        with self._reaching():
            run = self._found(record.job) or self._created(record)
            run_id: str = run.info.run_id
            self._log(run, record)
            self._upload(run_id, files)
            self._end(run, record.state)
            return run_id

    def close(self) -> None:
        """Does nothing: every write is whole."""

    def _found(self, job: str) -> Any:
        query = f"tags.`assay.job` = '{job}'"
        runs = self._client.search_runs([self._experiment], query, max_results=1, order_by=["start_time ASC"])
        return runs[0] if runs else None

    def _created(self, record: RunRecord) -> Any:
        tags = {"assay.job": record.job}
        return self._client.create_run(self._experiment, tags=tags, run_name=record.name)

    def _log(self, run: Any, record: RunRecord) -> None:
        from mlflow.entities import Metric, Param, RunTag

        now = int(time.time() * 1000)
        tags = dict(record.tags)
        parent = self._found(record.study) if record.study is not None else None
        if parent is not None:
            tags["mlflow.parentRunId"] = parent.info.run_id
        metrics = [
            Metric(name, value, now, 0)
            for name, value in record.metrics.items()
            if not _same(run.data.metrics.get(name), value)
        ]
        # Neither a run's parameter nor a job's spec can change.
        params = [Param(name, text) for name, text in record.params.items() if name not in run.data.params]
        changed = [RunTag(name, text) for name, text in tags.items() if run.data.tags.get(name) != text]
        run_id = run.info.run_id
        for start in range(0, len(params), MAX_PARAMS):
            self._client.log_batch(run_id, params=params[start : start + MAX_PARAMS])
        for start in range(0, len(changed), MAX_PARAMS):
            self._client.log_batch(run_id, tags=changed[start : start + MAX_PARAMS])
        for start in range(0, len(metrics), MAX_METRICS):
            self._client.log_batch(run_id, metrics=metrics[start : start + MAX_METRICS])

    def _upload(self, run_id: str, files: Mapping[str, bytes]) -> None:
        with _folder(files) as folder:
            for name in files:
                self._client.log_artifact(run_id, str(folder / name))

    def _end(self, run: Any, state: JobState) -> None:
        wanted = ENDED.get(state, "RUNNING")
        if run.info.status == wanted:
            return
        if wanted == "RUNNING":
            self._client.update_run(run.info.run_id, status=wanted)
        else:
            self._client.set_terminated(run.info.run_id, status=wanted)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except self._failure as error:
            raise TrackerError(f"MLflow: {error}") from error


class WandbTracker:
    """A project of Weights & Biases. Runs stay open until their job ends, or the tracker is closed."""

    def __init__(self, project: str, entity: str | None) -> None:
        try:
            import wandb
        except ImportError as error:
            raise ImportError('wandb is not installed: pip install "assay-robustness[wandb]"') from error
        self._wandb: Any = wandb
        self._project = self.where = project
        self._entity = entity
        self._open: dict[str, Any] = {}

    def write(self, record: RunRecord, files: Mapping[str, bytes]) -> str:
        """Makes or updates the run with the job's id."""
        try:
            run = self._open.get(record.job) or self._opened(record)
            run.config.update({**record.spec, "assay": dict(record.tags)}, allow_val_change=True)
            run.summary.update(dict(record.metrics))
            artifact = self._wandb.Artifact(f"assay-{record.job}", type="results", metadata=dict(record.tags))
            with _folder(files) as folder:
                for name in files:
                    artifact.add_file(str(folder / name), name=name, policy="mutable")
                if files:
                    run.log_artifact(artifact)
                if record.state.terminal:
                    self._open.pop(record.job)
                    run.finish(exit_code=0 if record.state is JobState.SUCCEEDED else 1)
        except self._wandb.Error as error:
            raise TrackerError(f"wandb: {error}") from error
        return record.job

    def close(self) -> None:
        """Ends the open runs here; their jobs go on."""
        while self._open:
            self._open.popitem()[1].finish()

    def _opened(self, record: RunRecord) -> Any:
        # wandb would note this machine, which has measured nothing.
        settings = self._wandb.Settings(
            console="off",
            disable_git=True,
            save_code=False,
            silent=True,
            x_disable_machine_info=True,
            x_disable_stats=True,
        )
        run = self._wandb.init(
            project=self._project,
            entity=self._entity,
            id=record.job,
            name=record.name,
            group=record.study,
            job_type=record.kind,
            tags=list(dict.fromkeys(label[:MAX_LABEL] for label in record.labels if label.strip())),
            resume="allow",
            reinit="create_new",
            settings=settings,
        )
        self._open[record.job] = run
        return run


def _from_the_root(uri: str) -> str:
    scheme, found, file = uri.partition(":///")
    return f"{scheme}{found}{Path(file).absolute()}" if found and scheme.startswith("sqlite") else uri


def _same(before: float | None, now: float) -> bool:
    return before is not None and math.isclose(before, now, rel_tol=1e-12, abs_tol=0.0)


@contextmanager
def _folder(files: Mapping[str, bytes]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="assay-") as name:
        for file, content in files.items():
            (Path(name) / file).write_bytes(content)
        yield Path(name)
