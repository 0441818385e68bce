"""Addresses of the database and Redis: settings shared by service and workers (prefix ASSAY_).

Passwords may come from files instead of the environment: a file `assay_database_password` in
`/run/secrets`, where Docker puts secrets, is read like the variable ASSAY_DATABASE_PASSWORD.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from assay.service.catalog.catalog import load_with
from assay.service.contract.extras import MissingExtra, require
from assay.service.contract.limits import Limits
from assay.service.contract.problems import message_of, nearest
from assay.service.files.blob_bucket import blob_bucket
from assay.service.files.data_store import DataStore
from assay.service.files.file_store import FileStore, FolderFiles
from assay.service.files.presigned import S3Place
from assay.service.files.s3_files import s3_files
from assay.service.submission.limits import JobLimits

PREFIX = "ASSAY_"
ReadSettings = TypeVar("ReadSettings", bound=BaseSettings)
OBJECTS = frozenset({"max_job_seconds", "passes_per_second"})  # Settings that are JSON objects
DeviceClass = Literal["cpu", "cuda"]
NumberOrNone = Annotated[float, Field(ge=0, allow_inf_nan=False)] | None
# A week on a CPU worker, thirty days on a GPU.
MAX_JOB_SECONDS: dict[DeviceClass, float | None] = {"cpu": 7 * 86400.0, "cuda": 30 * 86400.0}
SECRETS = Path("/run/secrets")
BUCKET = re.compile(
    r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9_][A-Za-z0-9._-]{0,99}){0,8}/?", re.ASCII
)
OTHERS = ("key", "url", "profile", "commit")  # Variables that are no settings of the service or its workers
MIN_PASSWORD_LENGTH = 12
DEFAULT_PASSWORDS = frozenset(  # Shipped with examples and images: they would only look safe.
    {"changeme", "changethis", "password", "postgres", "redis", "secret", "admin", "assay", "example"}
)


class Connections(BaseSettings):
    """Embedded: SQLite in the state folder, no Redis. Distributed: PostgreSQL and Redis, both named."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        frozen=True,
        validate_default=True,
        secrets_dir=SECRETS if SECRETS.is_dir() else None,
    )

    mode: Literal["embedded", "distributed"] = Field(
        "embedded", description="one machine with SQLite, or several with PostgreSQL and Redis"
    )
    state: Path = Field(Path("assay-state"), description="folder for everything that is written to files")
    database_url: str = Field("", description="SQLAlchemy URL; empty means SQLite in the state folder")
    database_password: SecretStr = Field(SecretStr(""), description="goes into a URL without one")
    redis_url: str = Field("", description="redis://host:6379/0; only the distributed mode uses it")
    redis_password: SecretStr = Field(SecretStr(""), description="goes into a URL without one")

    files: str = Field(
        "",
        description="`s3://bucket/prefix`: an object store that keeps the files of jobs (extra `s3`); empty:"
        " the state folder",
    )
    files_cache_bytes: int = Field(
        20 * 1024**3, ge=0, description="of this machine's copies of files in an object store"
    )
    s3_endpoint: str = Field(
        "", description="address of an object store that is not Amazon's; else AWS_ENDPOINT_URL"
    )
    s3_region: str = Field("", description="of the bucket; else AWS_REGION, or us-east-1")
    s3_access_key_id: SecretStr = Field(SecretStr(""), description="else AWS_ACCESS_KEY_ID")
    s3_secret_access_key: SecretStr = Field(SecretStr(""), description="else AWS_SECRET_ACCESS_KEY")

    catalog: Path | None = Field(None, description="file with the components of other packages")
    data_store: Path | None = Field(
        None, description="folder of `assay data publish`: data sets and weights, for nodes"
    )
    data_blobs: str = Field(
        "",
        description="`s3://bucket/prefix`: keeps the contents of published files, and nodes fetch them there"
        " (extra `s3`); empty: ASSAY_DATA_STORE",
    )

    max_job_seconds: dict[DeviceClass, NumberOrNone] = Field(
        MAX_JOB_SECONDS, description="of computing that a job may ask for, by device class; 0, null: no limit"
    )
    max_examples: Annotated[
        int, Field(ge=0, description="of a job, once for each evaluation or epoch; 0: no limit")
    ] = 10**9
    max_queued_jobs: int = Field(10_000, ge=0, description="jobs of a tenant that have not started; 0: any")
    max_running_shards: int = Field(0, ge=0, description="shards of a tenant that run at once; 0: any")
    max_gpu_seconds_per_day: int = Field(0, ge=0, description="of a tenant on GPU workers; 0: any")
    max_cpu_seconds_per_day: int = Field(0, ge=0, description="of a tenant on other workers; 0: any")
    max_stored_bytes: int = Field(0, ge=0, description="checkpoints and artifacts of a tenant; 0: any")
    max_job_files_bytes: int = Field(
        256 * 1024**3, ge=0, description="of all files of a job together; 0: no limit"
    )
    max_uploads: int = Field(8, ge=0, description="uploads of a tenant in flight; 0: any")
    upload_idle_seconds: float = Field(
        60.0, gt=0, allow_inf_nan=False, description="without a byte an upload loses its room after this time"
    )

    repeat: float | None = Field(
        None,
        ge=0,
        le=1,
        description="share of the shards that are computed again on another worker, unless a job states it;"
        " empty: 0.01 distributed and over a gateway, where there is another worker, and 0 embedded",
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="of the log")
    log_format: Literal["text", "json"] = Field(
        "text", description="of the log: lines for people, or JSON lines"
    )

    @field_validator("state")
    @classmethod
    def _absolute_state(cls, path: Path) -> Path:
        return absolute(path)

    @field_validator("data_store", mode="before")
    @classmethod
    def _absolute_data_store(cls, path: str | Path | None) -> Path | None:
        return None if path in (None, "") else absolute(Path(str(path)))

    @field_validator("max_job_seconds")
    @classmethod
    def _both_classes(cls, given: dict[DeviceClass, float | None]) -> dict[DeviceClass, float | None]:
        return {**MAX_JOB_SECONDS, **given}

    @field_validator("catalog", mode="before")
    @classmethod
    def _usable_catalog(cls, given: object) -> object:
        if not given:  # Read wherever a catalog is needed; checked here, it is refused before startup.
            return None
        load_with(str(given))
        return given

    @field_validator("files", "data_blobs")
    @classmethod
    def _bucket(cls, given: str) -> str:
        if not given:
            return given
        if not BUCKET.fullmatch(given):
            raise ValueError("allowed: s3://bucket or s3://bucket/prefix, of letters, digits and - . _")
        try:
            require("s3://...", "s3")
        except MissingExtra as error:
            raise ValueError(str(error)) from None
        return given

    @model_validator(mode="after")
    def _reachable_store(self) -> Self:
        if self.data_blobs and self.data_store is None:
            raise ValueError(f"{PREFIX}DATA_BLOBS needs {PREFIX}DATA_STORE, a folder for names and lists")
        for name, bucket in (("FILES", self.files), ("DATA_BLOBS", self.data_blobs)):
            if not bucket:
                continue
            place = self._s3_place(bucket)
            parts = urlsplit(place.endpoint)
            if not parts.hostname or parts.scheme not in ("http", "https") or parts.path.strip("/"):
                raise ValueError(
                    f"{PREFIX}S3_ENDPOINT: the object store has no address; allowed: https://host[:port]"
                )
            if not (place.access_key_id and place.secret_access_key):
                raise ValueError(
                    f"{PREFIX}{name} needs {PREFIX}S3_ACCESS_KEY_ID and {PREFIX}S3_SECRET_ACCESS_KEY, or"
                    " AWS's variables of these names"
                )
        return self

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.mode == "embedded":
            return self
        database = _parsed(self.database)
        if database is None or database.drivername != "postgresql+psycopg":
            raise ValueError(
                f"{PREFIX}DATABASE_URL: the distributed mode keeps its truth in PostgreSQL;"
                " allowed: postgresql+psycopg://user@host/database"
            )
        redis = urlsplit(self.redis_url)
        if redis.scheme not in {"redis", "rediss"} or not redis.hostname:
            raise ValueError(
                f"{PREFIX}REDIS_URL: the distributed mode rings its workers through Redis;"
                " allowed: redis://host:6379/0 or rediss://host:6379/0"
            )
        _guarded("DATABASE", database.host or "", database.password or "")
        _guarded("REDIS", redis.hostname, urlsplit(self.redis).password or "")
        return self

    @property
    def database(self) -> str:
        """The database URL, with the embedded default and the password filled in."""
        url, password = self.database_url, self.database_password.get_secret_value()
        if not url:
            return f"sqlite:///{self.state / 'assay.sqlite'}"
        parsed = _parsed(url)
        if parsed is None or not password or parsed.password:
            return url
        return parsed.set(password=password).render_as_string(hide_password=False)

    @property
    def redis(self) -> str:
        """The Redis URL with the password filled in; empty in embedded mode."""
        if self.mode == "embedded" or not self.redis_url:
            return ""
        parts, password = urlsplit(self.redis_url), self.redis_password.get_secret_value()
        if not password or parts.password:
            return self.redis_url
        user = parts.username or ""
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit(parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}"))

    @property
    def job_limits(self) -> JobLimits:
        """Limits of a job's work."""
        seconds: dict[str, float | None] = {
            device: value or None for device, value in self.max_job_seconds.items()
        }
        return JobLimits(seconds, self.max_examples or None)

    @property
    def limits(self) -> Limits:
        """Limits of tenants without limits of their own."""
        return Limits(
            queued_jobs=self.max_queued_jobs,
            running_shards=self.max_running_shards,
            gpu_seconds=self.max_gpu_seconds_per_day,
            cpu_seconds=self.max_cpu_seconds_per_day,
            stored_bytes=self.max_stored_bytes,
            uploads=self.max_uploads,
        )

    @property
    def artifacts(self) -> Path:
        """The folder that holds `<job id>/<artifact name>`; shared by all machines, or each machine's own."""
        return self.state / "artifacts"

    @property
    def file_store(self) -> FileStore:
        """The store of the jobs' files."""
        if not self.files:
            return FolderFiles(self.artifacts)
        place = self._s3_place(self.files)
        return s3_files(place, self.state / "file-copies", self.files_cache_bytes, os.getpid())

    @property
    def published(self) -> DataStore | None:
        """The published data sets and weights; None without a store."""
        if self.data_store is None:
            return None
        bucket = self.data_blobs and blob_bucket(self._s3_place(self.data_blobs), os.getpid())
        return DataStore(self.data_store, bucket or None)

    @property
    def published_version(self) -> str:
        """`DataStore.version`; empty without a store."""
        return "" if self.data_store is None else DataStore(self.data_store).version

    def _s3_place(self, url: str) -> S3Place:
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        region = self.s3_region or os.environ.get("AWS_REGION", "us-east-1")
        amazon = f"https://s3.{region}.amazonaws.com"
        key, secret = self.s3_access_key_id.get_secret_value(), self.s3_secret_access_key.get_secret_value()
        return S3Place(
            bucket,
            prefix.strip("/"),
            (self.s3_endpoint or os.environ.get("AWS_ENDPOINT_URL") or amazon).rstrip("/"),
            region,
            key or os.environ.get("AWS_ACCESS_KEY_ID", ""),
            secret or os.environ.get("AWS_SECRET_ACCESS_KEY", ""),
            "" if key else os.environ.get("AWS_SESSION_TOKEN", ""),
        )


def wrong_settings(error: ValidationError | SettingsError) -> list[str]:
    """A line for every wrong setting, `ASSAY_PORT: what is wrong (given 70000)`."""
    if isinstance(error, SettingsError):
        # Raised before validation, for values that are no JSON: 'error parsing value for field "x" from ...'.
        field = re.search(r'field "(\w+)"', str(error))
        what = "object" if field and field[1] in OBJECTS else "list"
        return [f"{PREFIX}{field[1].upper()}: must be a JSON {what}" if field else str(error)]
    lines = []
    for item in error.errors():
        message = message_of(item)
        name = ".".join(map(str, item["loc"])).upper()
        # A rule about several settings has no name, and its message says which they are.
        lines.append(f"{PREFIX}{name}: {message} (given {str(item['input'])[:200]!r})" if name else message)
    return lines


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only be reached from this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def settings_of(
    kind: Callable[[], ReadSettings], module: str, description: str | None, arguments: Sequence[str]
) -> ReadSettings | None:
    """A program's settings, read from its environment; None, with a line for each on stderr, if wrong.

    Ends the process with usage text where the program gets arguments.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -P -m {module}",
        description=(description or "").partition("\n")[0],
        epilog="Its settings are environment variables: docs/reference/settings.md lists them.",
    )
    parser.parse_args(arguments)
    try:
        return kind()
    except (ValidationError, SettingsError) as error:
        sys.stderr.write("".join(f"{line}\n" for line in wrong_settings(error)))
        return None


def absolute(path: Path) -> Path:
    """The path from the root. Raises ValueError: it is in the home folder of an unknown user."""
    try:
        return path.expanduser().resolve()
    except RuntimeError:
        raise ValueError(f"path {str(path)!r} is in the home folder of an unknown user") from None


def _parsed(url: str) -> URL | None:
    try:
        return make_url(url)
    except (ArgumentError, ValueError):
        return None


def _guarded(name: str, host: str, password: str) -> None:
    """Refuse a server on the network without a password, or with a published one."""
    if not password and (not host or host.startswith("/") or is_loopback(host)):
        return
    if not password:
        raise ValueError(
            f"{PREFIX}{name}_PASSWORD: missing; {host} can be reached over the network."
            f" Allowed: the variable, or the file {SECRETS}/{PREFIX.lower()}{name.lower()}_password"
        )
    if password.lower() in DEFAULT_PASSWORDS or len(password) < MIN_PASSWORD_LENGTH:
        raise ValueError(
            f"{PREFIX}{name}_PASSWORD: too short or a well-known default;"
            f" allowed: at least {MIN_PASSWORD_LENGTH} characters, for example from `openssl rand -hex 24`"
        )


def unknown_variables(settings: Iterable[str]) -> list[str]:
    """A line for each variable of the environment that looks like a setting and is none."""
    known = [f"{PREFIX}{name.upper()}" for name in (*settings, *OTHERS)]
    given = sorted(name for name in os.environ if name.upper().startswith(PREFIX))
    lines = []
    for name in given:
        if name.upper() not in known:
            near = nearest(name, known)
            lines.append(
                f"{name} is no setting and has no effect" + (f"; did you mean {near}?" if near else "")
            )
    return lines
