"""What a worker must know, read from the environment (prefix ASSAY_)."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class WorkerSettings(BaseSettings):
    """Settings of supervisors, evaluators and the reaper. Times are in seconds, and finite."""

    model_config = SettingsConfigDict(
        env_prefix="ASSAY_", extra="ignore", frozen=True, allow_inf_nan=False, validate_default=True
    )

    state: Path = Path("assay-state")
    data_root: Path | None = None
    torch_threads: int = Field(default=1, ge=1)
    lease_seconds: float = Field(default=90.0, gt=0)
    renew_seconds: float = Field(default=20.0, gt=0)
    poll_seconds: float = Field(default=0.5, gt=0)
    control_seconds: float = Field(
        default=1.0, gt=0, description="how often a running shard asks whether to stop"
    )
    shard_seconds: float = Field(default=240.0, gt=0, description="nominal length of a shard")
    database_away_seconds: float = Field(default=2.0, gt=0, description="between attempts to reach it")
    checkpoint_seconds: float = Field(default=60.0, gt=0)
    cancel_grace_seconds: float = Field(default=8.0, ge=0, description="between SIGTERM and SIGKILL")
    idle_seconds: float = Field(
        default=300.0, ge=0, description="an idle evaluator is stopped after this time"
    )
    evaluator_command: str = ""

    @field_validator("state", "data_root")
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        try:
            return path.expanduser().resolve() if path is not None else None
        except RuntimeError:
            raise ValueError(f"path {str(path)!r} is in the home folder of an unknown user") from None

    @field_validator("evaluator_command")
    @classmethod
    def _splits_into_words(cls, command: str) -> str:
        try:
            shlex.split(command)
        except ValueError as error:
            raise ValueError(f"no command line: {error}") from None
        return command

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

    @property
    def renewal_seconds(self) -> float:
        """How often a running shard renews its lease, which is also how it learns that it has to stop."""
        return min(self.renew_seconds, self.control_seconds)

    @property
    def evaluator_argv(self) -> list[str]:
        """The command line of an evaluator process."""
        return shlex.split(self.evaluator_command) or [sys.executable, "-m", "workers.evaluator"]

    def artifacts(self, job_id: str) -> Path:
        """The folder of a job's files."""
        return self.state / "artifacts" / job_id
