"""Settings of workers, from the environment (prefix ASSAY_)."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_settings import SettingsConfigDict
from sqlalchemy import make_url

from assay.service.contract.fleet.gateway import gateway_address
from assay.service.contract.weights.pulled import VARIABLE as WEIGHTS_ROOT
from assay.service.contract.weights.pulled import default_weights_root
from assay.service.store.connections import Connections, absolute
from assay.workers.containment.limits import Limits, machine_memory
from assay.workers.containment.settings import VARIABLE, Containment
from assay.workers.containment.users import Users
from assay.workers.devices import available_cores
from assay.workers.supervision.worker_end import ENDING_SECONDS

# With cancel hints through Redis, the database is asked less often; this limits the delay of a cancel whose
# hint was lost.
UNHINTED_SECONDS = 5.0


MIN_EVALUATOR_BYTES = 16 * 1024**2


def _enough_memory(size: int) -> int:
    if 0 < size < MIN_EVALUATOR_BYTES:
        raise ValueError(f"{size} given; allowed: 0, or at least {MIN_EVALUATOR_BYTES} bytes")
    return size


def _range(text: str) -> str:
    found = re.fullmatch(r"([1-9]\d{0,9})-([1-9]\d{0,9})", text)
    if found is None or not int(found[1]) <= int(found[2]) < 2**32 - 1:
        raise ValueError("allowed: FIRST-LAST, numbers of users that no account has")
    return text


def _names(text: str) -> str:
    for name in text.split(","):
        if name.strip() and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name.strip()):
            raise ValueError(f"{name.strip()!r} given; allowed: names of variables, separated by commas")
    return text


class WorkerSettings(Connections):
    """Settings of supervisors, evaluators and the reaper. Times are in seconds, and finite."""

    model_config = SettingsConfigDict(allow_inf_nan=False)

    data_root: Path | None = Field(default=None, description="folder with the data sets")
    weights_root: Path = Field(
        default_factory=default_weights_root, description="folder of `assay pull`, which jobs read"
    )
    torch_threads: int = Field(default=1, ge=1, description="threads of torch in one evaluator")
    devices: int = Field(
        default=1,
        ge=1,
        le=64,
        description="of each worker, for a training: GPUs, or processes on a machine without GPUs",
    )
    workers_per_gpu: int = Field(
        default=1,
        ge=1,
        le=16,
        description="of a box: workers that share each GPU, each with an equal part of its memory",
    )
    cores: int = Field(
        default=0, ge=0, description="of each worker, for its training; 0: its part of the machine's cores"
    )
    lease_seconds: float = Field(
        default=90.0, gt=0, description="after this time without a heartbeat a shard goes to another worker"
    )
    renew_seconds: float = Field(default=20.0, gt=0, description="between two heartbeats of a running shard")
    poll_seconds: float = Field(
        default=0.0, ge=0, description="how often an idle worker looks; 0 means 0.5, distributed 10"
    )
    sweep_seconds: float = Field(default=2.0, gt=0, description="between two looks of the reaper")
    node: Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9._-]*$")] = Field(
        default="", description="name of a worker on its machine; empty: its number"
    )
    nodes: int = Field(default=1, ge=1, le=256, description="nodes of a box without a GPU")
    control_seconds: float = Field(
        default=1.0, gt=0, description="how often a running shard asks whether to stop"
    )
    shard_seconds: float = Field(default=240.0, gt=0, description="nominal length of a shard")
    worker_idle_seconds: float | None = Field(
        default=None, ge=0, description="`assay worker` ends after so long without work; empty: never"
    )
    worker_max_seconds: float | None = Field(
        default=None,
        gt=0,
        description="`assay worker` ends after so long, and takes only shards that fit; empty: never",
    )
    database_away_seconds: float = Field(default=2.0, gt=0, description="between attempts to reach it")
    checkpoint_seconds: float = Field(default=60.0, gt=0, description="between two checkpoints of a training")
    stall_seconds: float = Field(
        default=300.0,
        gt=0,
        description="a shard without progress for so long, and ten times what its plan expects, is ended",
    )
    motionless_seconds: float = Field(
        default=900.0,
        gt=0,
        description="a shard whose evaluator neither reports progress nor computes for so long is ended",
    )
    cancel_grace_seconds: float = Field(default=8.0, ge=0, description="between SIGTERM and SIGKILL")
    idle_seconds: float = Field(
        default=300.0, ge=0, description="an idle evaluator is stopped after this time"
    )
    prefetch: bool = Field(
        default=False,
        description="start and test evaluators with the worker, so that the first shard does not wait for"
        " their libraries",
    )
    max_check_seconds: float = Field(
        default=120.0, gt=0, description="a check of an upload that takes longer rejects it"
    )
    evaluator_command: str = Field(
        default="", description="command line that starts an evaluator; empty: the one of this installation"
    )
    sandbox: Literal["off", "auto", "required"] = Field(
        default="auto",
        description="containment of evaluators: none, what this machine allows, or no work without all of it",
    )
    sandbox_user: Literal["off", "auto", "required"] = Field(
        default="auto",
        description="a user for the evaluators of each job: none, where this process is root, or a demanded"
        " part of the containment",
    )
    sandbox_compile: Literal["off", "on"] = Field(
        default="off",
        description="whether evaluators of jobs with execution.compile may start programs: compilers",
    )
    evaluator_users: Annotated[str, AfterValidator(_range)] = Field(
        default="1900000000-1916777215", description="user and group numbers that evaluators may get"
    )
    max_evaluator_bytes: Annotated[int, AfterValidator(_enough_memory)] = Field(
        default=0, ge=0, description="memory of each evaluator; 0: its part of the machine's memory"
    )
    max_processor_seconds: int = Field(
        default=1_000_000, ge=0, description="processor time per thread of a job's evaluator; 0: no limit"
    )
    max_file_bytes: int = Field(
        default=32 * 1024**3, ge=0, description="of each file that an evaluator writes; 0: no limit"
    )
    stage: bool = Field(
        default=False, description="a worker stages published data and weights that waiting jobs need"
    )
    stage_bytes: int = Field(
        default=0, ge=0, description="of staged data sets, and of weights; above it unused ones go; 0: any"
    )
    gateway: str = Field(
        default="", description="address of a service whose gateway gives this worker its shards"
    )
    worker_key: SecretStr = Field(
        default=SecretStr(""), description="key with the scope `worker`, for the gateway"
    )
    worker_key_file: Path | None = Field(
        default=None, description="file with that key, read at each call: keys are exchanged without a stop"
    )
    evaluator_environment: Annotated[str, AfterValidator(_names)] = Field(
        default="", description="further variables that evaluators get, separated by commas"
    )
    keep_artifacts_days: float = Field(
        default=0.0, ge=0, description="files of a job are deleted so long after its end; 0: never"
    )
    keep_audit_days: int = Field(
        default=400, ge=0, le=36500, description="audit entries are removed after this time; 0: never"
    )

    render_plots: bool = Field(
        default=True, description="whether plots are stored as SVG too, beside their data, when a job ends"
    )

    @field_validator("gateway")
    @classmethod
    def _address(cls, url: str) -> str:
        return gateway_address(url)

    @field_validator("sandbox_user")
    @classmethod
    def _user_of_the_contained(cls, user: str, info: ValidationInfo) -> str:
        if user == "required" and info.data.get("sandbox") == "off":
            raise ValueError("ASSAY_SANDBOX=off gives no evaluator a user; allowed with it: off, auto")
        return user

    @field_validator("data_root", mode="before")
    @classmethod
    def _absolute_data_root(cls, path: str | Path | None) -> Path | None:
        # An empty variable is none: it would be the folder that the process was started in.
        return None if path in (None, "") else absolute(Path(str(path)))

    @field_validator("weights_root", mode="before")
    @classmethod
    def _absolute_weights_root(cls, path: str | Path) -> Path:
        return absolute(Path(str(path))) if path not in (None, "") else default_weights_root()

    @field_validator("evaluator_command")
    @classmethod
    def _splits_into_words(cls, command: str) -> str:
        try:
            shlex.split(command)
        except ValueError as error:
            raise ValueError(f"no command line: {error}") from None
        return command

    @field_validator("workers_per_gpu")
    @classmethod
    def _one_or_the_other(cls, count: int, info: ValidationInfo) -> int:
        if count > 1 and info.data.get("devices", 1) > 1:
            raise ValueError("a worker of several GPUs (ASSAY_DEVICES) shares none of them; allowed: 1")
        return count

    @model_validator(mode="after")
    def _room_for_a_shard(self) -> Self:
        if self.worker_max_seconds is not None:
            least = self.shard_seconds + self.cancel_grace_seconds + ENDING_SECONDS
            if self.worker_max_seconds < least:
                raise ValueError(
                    f"ASSAY_WORKER_MAX_SECONDS: {self.worker_max_seconds:g} s have no room for a shard of"
                    f" {self.shard_seconds:g} s (ASSAY_SHARD_SECONDS); allowed: at least {least:g}"
                )
        return self

    @field_validator("control_seconds")
    @classmethod
    def _renewed_in_time(cls, control: float, info: ValidationInfo) -> float:
        lease, renew = info.data.get("lease_seconds"), info.data.get("renew_seconds")
        if lease is not None and renew is not None and min(control, renew) > lease / 2:
            raise ValueError(
                f"a lease of {lease:g} s would run out between renewals; allowed:"
                " at most half of it, here or in renew_seconds"
            )
        return control

    def cores_each(self, workers: int) -> int:
        """The cores of each of so many workers that share the cores of this process."""
        return self.cores or max(1, available_cores() // max(workers, 1))

    def memory_each(self, workers: int) -> int:
        """Bytes of memory of an evaluator where so many workers share this machine; 0: unlimited."""
        return self.max_evaluator_bytes or machine_memory() // max(workers, 1)

    @property
    def containment(self) -> Containment:
        """What its evaluators are told."""
        seconds = self.max_processor_seconds * self.torch_threads
        limits = Limits(self.memory_each(1), seconds, self.max_file_bytes)
        first, last = map(int, self.evaluator_users.split("-"))
        users = Users(first, last - first + 1, demanded=self.sandbox_user == "required")
        chosen = None if self.sandbox_user == "off" else users
        compiles = self.sandbox_compile == "on"
        return Containment(self.sandbox, self.state, limits, self._private(), chosen, compiles)

    @property
    def trial(self) -> tuple[tuple[str, str], ...]:
        """The variables of an evaluator that say what it is contained in and reads."""
        paths = {
            "ASSAY_DATA_ROOT": self.data_root,
            WEIGHTS_ROOT: self.weights_root,
            "ASSAY_CATALOG": os.environ.get("ASSAY_CATALOG"),  # which the embedded service sets
        }
        named = {name: str(path) for name, path in paths.items() if path is not None}
        return (*named.items(), (VARIABLE, self.containment.to_text()))

    def _private(self) -> tuple[Path, ...]:
        """The database file and the signing keys, which may be outside the state folder."""
        found = [os.environ.get(name) for name in ("ASSAY_SIGNING_FOLDER", "ASSAY_SIGNING_KEY")]
        if self.database.startswith("sqlite"):
            found.append(make_url(self.database).database)
        return tuple(Path(path).expanduser().absolute() for path in found if path and path != ":memory:")

    @property
    def evaluator_variables(self) -> frozenset[str]:
        """Names of further variables that evaluators get."""
        return frozenset(name.strip() for name in self.evaluator_environment.split(",") if name.strip())

    @property
    def among_others(self) -> bool:
        """Whether other machines may have workers of the same service."""
        return self.mode == "distributed" or bool(self.gateway)

    def read_worker_key(self) -> str:
        """The key for the gateway; empty without one."""
        if self.worker_key_file is not None:
            with contextlib.suppress(OSError):
                return self.worker_key_file.read_text().strip()
        return self.worker_key.get_secret_value()

    @property
    def rest_seconds(self) -> float:
        """Longest sleep of an idle worker without a ring."""
        return self.poll_seconds or (10.0 if self.among_others else 0.5)

    @property
    def renewal_seconds(self) -> float:
        """Interval of a running shard's lease renewals, by which it also learns that it has to stop."""
        if not self.redis and not self.gateway:
            return min(self.renew_seconds, self.control_seconds)
        return min(self.renew_seconds, max(self.control_seconds, UNHINTED_SECONDS), self.lease_seconds / 3)

    @property
    def evaluator_argv(self) -> list[str]:
        """The command line of an evaluator process."""
        return shlex.split(self.evaluator_command) or [sys.executable, "-P", "-m", "assay.workers.evaluator"]

    def folder(self, job_id: str) -> Path:
        """The folder of a job's files."""
        return self.artifacts / job_id
