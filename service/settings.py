"""Settings of the service, from environment variables that start with `ASSAY_`.

The defaults fit the embedded mode: SQLite and artifacts under `./assay-state`, one worker, on loopback
without API keys. On any other address, and in distributed mode, every call needs a key.
"""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from assay.service import features
from assay.service.contract.fleet.workers import DIGEST_PATTERN
from assay.service.store.connections import Connections, DeviceClass, absolute, is_loopback

# Of fast small models: what is refused at this speed is too much for every model.
PASSES_PER_SECOND: dict[DeviceClass, float] = {"cpu": 1e4, "cuda": 1e5}
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


class Settings(Connections):
    """Settings of the service; `workers.settings` has the settings of workers. Paths are made absolute."""

    data_root: Path | None = Field(None, description="folder with the data sets")

    host: str = Field("127.0.0.1", min_length=1, description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0: any that is free")
    allowed_hosts: list[str] = Field(
        list(LOOPBACK_NAMES), description="names that a request's Host header may carry (JSON list)"
    )
    trusted_proxies: list[str] = Field(
        [], description="addresses and networks of proxies whose X-Forwarded-For is believed (JSON list)"
    )
    require_keys: bool = Field(
        False, description="ask for API keys on loopback too; elsewhere they are always asked for"
    )
    max_body_bytes: int = Field(1024 * 1024, ge=1, description="of a request's JSON body")
    max_checkpoint_bytes: int = Field(4 * 1024**3, ge=1, description="of an uploaded file")
    max_checkpoints: int = Field(200, ge=1, description="uploaded files that a tenant may keep")
    max_checkpoints_bytes: int = Field(64 * 1024**3, ge=1, description="of all that a tenant keeps")
    max_evaluations: int = Field(500, ge=1, le=500, description="of a job, with its suites expanded")
    passes_per_second: dict[DeviceClass, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(
        PASSES_PER_SECOND,
        description="assumed of a model by device class, until a job with it has ended there",
    )
    max_auto_cpu_seconds: float = Field(
        3600.0,
        ge=0,
        allow_inf_nan=False,
        description="a job for `auto` that a CPU would take longer for waits for a GPU, where one is online;"
        " 0: never",
    )
    max_json_depth: int = Field(32, ge=1, le=200, description="levels of a request's JSON body")

    allowed_identities: list[str] = Field(
        [],
        description="digests of identities of workers that may take work, besides the service's own release"
        " (JSON list)",
    )

    signing_key: Path | None = Field(None, description="PEM file with the key that signs results")
    signing_folder: Path | None = Field(
        None,
        description="folder of the generated and the retired keys (default: `signing` in the state folder)",
    )

    max_connections: int = Field(1000, ge=16, description="open at a time")
    max_connections_per_address: int = Field(
        500, ge=1, description="of a client's address, or of the proxy in front"
    )
    max_streams: int = Field(256, ge=1, description="event streams open at a time")
    max_streams_per_tenant: int = Field(32, ge=1, description="event streams that a tenant has open")
    header_seconds: float = Field(10, gt=0, le=3600, description="within which a request's header must come")
    keep_alive_seconds: int = Field(5, ge=1, le=3600, description="between two requests of a connection")
    body_idle_seconds: float = Field(
        30, gt=0, le=3600, description="a body that brings too little in this time is given up"
    )
    min_upload_rate: int = Field(
        4096, ge=0, description="bytes per second of a body, averaged over the idle time"
    )
    write_idle_seconds: float = Field(
        60, gt=0, le=3600, description="a client that reads none of its answer for so long is cut off"
    )

    webhook_allow: list[str] = Field(
        [],
        description="hosts, addresses and networks that webhooks may reach although they are private, over"
        " http and at any port too (JSON list)",
    )
    max_webhooks: int = Field(20, ge=0, le=1000, description="that a tenant may register; 0: none")
    max_webhook_pending: int = Field(
        1000,
        ge=1,
        le=1_000_000,
        description="messages that wait for one webhook; above it the oldest are given up and counted",
    )

    workers: Annotated[int, Field(ge=0, le=256, description="evaluators of the embedded mode")] = 1

    @field_validator("allowed_identities")
    @classmethod
    def _digests(cls, given: list[str]) -> list[str]:
        for one in given:
            if not re.fullmatch(DIGEST_PATTERN, one):
                raise ValueError(
                    f"{one!r} given; allowed: 16 hexadecimal digits, as `assay workers list` shows"
                )
        return given

    @field_validator("passes_per_second")
    @classmethod
    def _both_speeds(cls, given: dict[DeviceClass, float]) -> dict[DeviceClass, float]:
        return {**PASSES_PER_SECOND, **given}

    @field_validator("data_root", mode="before")
    @classmethod
    def _absolute_data_root(cls, path: str | Path | None) -> Path | None:
        # An empty variable is none: it would be the folder that the process was started in.
        return None if path in (None, "") else absolute(Path(str(path)))

    @field_validator("trusted_proxies")
    @classmethod
    def _addresses(cls, proxies: list[str]) -> list[str]:
        try:
            return [str(ip_network(proxy)) if "/" in proxy else str(ip_address(proxy)) for proxy in proxies]
        except ValueError as error:
            raise ValueError(
                f'{error}; allowed: addresses and networks, such as ["127.0.0.1", "172.16.0.0/12"]'
            ) from None

    @field_validator("webhook_allow")
    @classmethod
    def _hosts_and_networks(cls, given: list[str]) -> list[str]:
        for one in given:
            try:
                ip_network(one) if "/" in one else None
            except ValueError as error:
                raise ValueError(
                    f'{error}; allowed: names, addresses and networks, such as ["10.1.0.0/16"]'
                ) from None
            if not one or "://" in one or "*" in one:
                raise ValueError(f"{one!r} is no host; allowed: names without wildcards, addresses, networks")
        return [one.lower().strip("[]") for one in given]

    @field_validator("signing_key")
    @classmethod
    def _usable_signing_key(cls, path: Path | None) -> Path | None:
        if path is None:  # The file is read at every signature; checking it here refuses it before startup.
            return None
        for module in features.modules("startup"):
            module.check_signing_key(absolute(path))
        return absolute(path)

    @field_validator("signing_folder")
    @classmethod
    def _absolute_signing_folder(cls, path: Path | None) -> Path | None:
        return None if path is None else absolute(path)

    @property
    def keys_required(self) -> bool:
        """Whether every call but health checks needs an API key: true wherever other machines could call."""
        return self.require_keys or self.mode == "distributed" or not is_loopback(self.host)

    @field_validator("allowed_hosts")
    @classmethod
    def _names_without_wildcards(cls, hosts: list[str]) -> list[str]:
        for host in hosts:
            if not host or "*" in host:
                raise ValueError(f"allowed_hosts has {host!r}; allowed: host names without port and '*'")
        return [host.lower().strip("[]") for host in hosts]
