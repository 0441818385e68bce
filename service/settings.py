"""Settings of the service, from environment variables that start with `ASSAY_`.

The defaults are those of the embedded mode: SQLite and artifacts under `./assay-state`, one worker,
loopback only.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

PREFIX = "ASSAY_"
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only be reached from this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def wrong_settings(error: ValidationError | SettingsError) -> list[str]:
    """A line for every wrong setting, `ASSAY_PORT: what is wrong (given 70000)`."""
    if isinstance(error, SettingsError):
        # Raised before validation, for lists that are no JSON: 'error parsing value for field "x" from ...'.
        field = re.search(r'field "(\w+)"', str(error))
        return [f"{PREFIX}{field[1].upper()}: must be a JSON list" if field else str(error)]
    lines = []
    for item in error.errors():
        message = item["msg"].removeprefix("Value error, ")
        name = ".".join(map(str, item["loc"])).upper()
        # A rule about several settings has no name, and its message says which they are.
        lines.append(f"{PREFIX}{name}: {message} (given {str(item['input'])[:200]!r})" if name else message)
    return lines


class Settings(BaseSettings):
    """What the service reads; what only workers read is in `workers.settings`. Paths are made absolute."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, validate_default=True)

    state: Path = Field(Path("assay-state"), description="folder for everything that the service writes")
    database_url: str = Field("", description="SQLAlchemy URL; empty means SQLite in the state folder")
    data_root: Path | None = Field(None, description="folder with the data sets")

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    allowed_hosts: list[str] = Field(
        list(LOOPBACK_NAMES), description="names that a request's Host header may carry (JSON list)"
    )
    max_body_bytes: Annotated[int, Field(ge=1)] = 1024 * 1024
    max_json_depth: Annotated[int, Field(ge=1, le=200)] = 32

    workers: Annotated[int, Field(ge=0, le=256, description="evaluators of the embedded mode")] = 1
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"

    @field_validator("state", "data_root")
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        try:
            return None if path is None else path.expanduser().absolute()
        except RuntimeError:
            raise ValueError(f"path {str(path)!r} is in the home folder of an unknown user") from None

    @field_validator("host")
    @classmethod
    def _loopback_only(cls, host: str) -> str:
        if not is_loopback(host):
            raise ValueError(
                f"host {host!r} can be reached from other machines, and this version has no API keys; "
                f"allowed: {', '.join(LOOPBACK_NAMES)}. Use a tunnel (ssh -L) to reach it from elsewhere"
            )
        return host

    @field_validator("allowed_hosts")
    @classmethod
    def _names_without_wildcards(cls, hosts: list[str]) -> list[str]:
        for host in hosts:
            if not host or "*" in host:
                raise ValueError(f"allowed_hosts has {host!r}; allowed: host names without port and '*'")
        return [host.lower().strip("[]") for host in hosts]

    @property
    def database(self) -> str:
        """The database URL, with the embedded default filled in."""
        return self.database_url or f"sqlite:///{self.state / 'assay.sqlite'}"

    @property
    def artifacts(self) -> Path:
        """The folder that holds `<job id>/<artifact name>`."""
        return self.state / "artifacts"
