"""What a worker must know, read from the environment (prefix ASSAY_)."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class WorkerSettings(BaseSettings):
    """Settings of supervisors, evaluators and the reaper. Times are in seconds, and finite."""

    model_config = SettingsConfigDict(env_prefix="ASSAY_", extra="ignore", frozen=True, allow_inf_nan=False)

    state: Path = Path("assay-state")
    data_root: Path | None = None
    torch_threads: int = Field(default=1, ge=1)
    lease_seconds: float = Field(default=90.0, gt=0)
    renew_seconds: float = Field(default=20.0, gt=0)
    poll_seconds: float = Field(default=0.5, gt=0)
    control_seconds: float = Field(default=1.0, gt=0, description="how often a running shard asks whether to stop")
    shard_seconds: float = Field(default=240.0, gt=0, description="nominal length of a shard")
    checkpoint_seconds: float = Field(default=60.0, gt=0)
    cancel_grace_seconds: float = Field(default=8.0, ge=0, description="between SIGTERM and SIGKILL")
    idle_seconds: float = Field(default=300.0, ge=0, description="an idle evaluator is stopped after this time")
    evaluator_command: str = ""

    @field_validator("state", "data_root")
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        return path.expanduser().resolve() if path is not None else None

    @field_validator("evaluator_command")
    @classmethod
    def _splits_into_words(cls, command: str) -> str:
        try:
            shlex.split(command)
        except ValueError as error:
            raise ValueError(f"no command line: {error}") from None
        return command

    @property
    def evaluator_argv(self) -> list[str]:
        """The command line of an evaluator process."""
        return shlex.split(self.evaluator_command) or [sys.executable, "-m", "workers.evaluator"]

    def artifacts(self, job_id: str) -> Path:
        """The folder of a job's files."""
        return self.state / "artifacts" / job_id
