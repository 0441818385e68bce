"""A fleet of Slurm's job arrays: what its user says, and the script of a worker."""

from __future__ import annotations

import hashlib
import math
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from assay.service.workers.fleet_wire import MAX_WORKERS, NAME_PATTERN

ENDING_SECONDS = 150  # Slurm's limit after a worker's own end
WARNING_SECONDS = 90  # SIGUSR1 before Slurm's limit
MARGIN_SECONDS = 60  # What a worker's end needs beside a shard; `worker_max_seconds` is checked there


def comment_of(name: str, script: str = "") -> str:
    """The comment of a fleet's jobs in Slurm; with the digest of what they run."""
    digest = f":{hashlib.sha256(script.encode()).hexdigest()[:16]}" if script else ""
    return f"assay-fleet:{name}{digest}"


def _of(pattern: str, allowed: str) -> AfterValidator:
    def check(text: str) -> str:
        if re.fullmatch(pattern, text) is None:
            raise ValueError(f"allowed: {allowed}")
        return text

    return AfterValidator(check)


FleetName = Annotated[str, _of(NAME_PATTERN[1:-1], "at most 40 lower-case letters, digits and -")]
SlurmWord = Annotated[str, _of(r"[A-Za-z0-9][A-Za-z0-9._,:@/+-]{0,199}", "letters, digits and ._,:@/+-")]
OneLine = Annotated[str, _of(r"[^\x00-\x1f\x7f]{1,500}", "a line of at most 500 characters")]
NodeFolder = Annotated[str, _of(r"/[^\x00-\x20\x7f]{0,499}", "an absolute path without spaces")]
SlurmMemory = Annotated[str, _of(r"[1-9][0-9]{0,8}[KMGT]?", "a number with K, M, G or T, such as 32G")]
NUMBER = "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
FLEETS_OWN = ("--name", "--until", "--max-seconds", "--devices", "--shard-seconds")


class SlurmFleet(BaseModel):
    """Options of `assay fleet slurm`. Times are in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    name: FleetName = "assay"
    partition: SlurmWord
    max: Annotated[int, Field(ge=1, le=MAX_WORKERS)]
    device: Literal["cuda", "cpu"] = "cuda"
    gres: SlurmWord = "gpu:1"  # of a worker with a GPU
    cpus: Annotated[int, Field(ge=1, le=1024)] = 1
    memory: SlurmMemory | None = None
    constraint: OneLine | None = None
    account: SlurmWord | None = None
    qos: SlurmWord | None = None
    idle: Annotated[int, Field(ge=1, le=86_400)] = 300
    shard_seconds: Annotated[int, Field(ge=1, le=86_400)] = 120
    max_seconds: Annotated[int, Field(ge=60, le=31 * 86_400)] = 13_800
    logs: NodeFolder = "/tmp"  # noqa: S108 (of each node: no file system need be shared)
    command: OneLine = "assay"
    container: Literal["none", "enroot", "apptainer"] = "none"
    image: OneLine | None = None
    every: Annotated[float, Field(gt=0, le=120, allow_inf_nan=False)] = 30.0  # between two looks
    worker: Sequence[str] = ()  # further options of `assay worker`

    @field_validator("max_seconds")
    @classmethod
    def _room_for_a_shard(cls, seconds: int, info: ValidationInfo) -> int:
        least = info.data.get("shard_seconds", 0) + MARGIN_SECONDS
        if seconds < least:
            raise ValueError(f"has no room for a shard; allowed: at least {least}")
        return seconds

    @field_validator("command")
    @classmethod
    def _splits_into_words(cls, command: str) -> str:
        try:
            shlex.split(command)
        except ValueError as error:
            raise ValueError(f"is no command line: {error}") from None
        return command

    @field_validator("image")
    @classmethod
    def _of_a_container(cls, image: str | None, info: ValidationInfo) -> str | None:
        container = info.data.get("container", "none")
        if (image is None) != (container == "none"):
            needs = "none" if image is not None else container
            raise ValueError(f"with --container {needs}: {'not allowed' if image else 'required'}")
        return image

    @field_validator("worker")
    @classmethod
    def _not_the_fleets_own(cls, worker: Sequence[str]) -> Sequence[str]:
        own = sorted({word.partition("=")[0] for word in worker} & {*FLEETS_OWN})
        if own:
            raise ValueError(f"the fleet gives its workers {', '.join(own)}: leave it out after --")
        return worker

    def script(self, environment: Mapping[str, str] = os.environ) -> str:
        """The batch script of a worker; `environment`: of the submitting process, which sbatch passes on."""
        lines = [f"#SBATCH --{option}" for option in self._batch_options()]
        rest = "\n".join([*lines, "", f"exec {self._worker(environment)}", ""])
        return f"#!/bin/sh\n#SBATCH --comment={comment_of(self.name, rest)}\n{rest}"

    @property
    def minutes(self) -> int:
        """What Slurm is asked for: a worker's time with its end."""
        return math.ceil((self.max_seconds + ENDING_SECONDS) / 60)

    def _batch_options(self) -> list[str]:
        given = {
            "gres": self.gres if self.device == "cuda" else None,
            "mem": self.memory,
            "constraint": None if self.constraint is None else shlex.quote(self.constraint),
            "account": self.account,
            "qos": self.qos,
        }
        return [
            f"job-name={self.name}",
            f"partition={self.partition}",
            "ntasks=1",
            f"cpus-per-task={self.cpus}",
            *(f"{option}={value}" for option, value in given.items() if value is not None),
            f"time={self.minutes}",
            f"signal=B:USR1@{WARNING_SECONDS}",
            "requeue",
            "open-mode=append",
            f"chdir={self.logs}",
            f"output={self.logs.rstrip('/')}/{self.name}-%A_%a.log",
        ]

    def _worker(self, environment: Mapping[str, str]) -> str:
        own = {
            "--until": f"idle={self.idle}",
            "--max-seconds": str(self.max_seconds),
            "--devices": "1",
            "--shard-seconds": str(self.shard_seconds),
        }
        told = [word for pair in own.items() for word in pair]
        words = [*self._container(environment), *shlex.split(self.command), "worker", *told, *self.worker]
        # The worker's name: a requeued job keeps its number, which squeue and the log have too. At a gateway
        # each has a folder of its own.
        given = {word.partition("=")[0] for word in self.worker}
        own_state = f' --state "${{TMPDIR:-/tmp}}/assay-$(id -u)-{NUMBER}"'
        state = own_state if "--gateway" in given and "--state" not in given else ""
        return f'{shlex.join(words)}{state} --name "{self.name}.{NUMBER}"'

    def _container(self, environment: Mapping[str, str]) -> list[str]:
        if self.image is None:
            return []
        gpu = self.device == "cuda"
        if self.container == "apptainer":  # passes the environment on
            return ["apptainer", "exec", *(["--nv"] if gpu else []), self.image]
        names = sorted(name for name in environment if re.fullmatch(r"ASSAY_(?!KEY$)[A-Z0-9_]+", name))
        passed = [word for name in names for word in ("--env", name)]
        return ["enroot", "start", *passed, self.image]
