"""API keys (`assay_<id>_<secret>`), which see their tenant's jobs (`admin`: all), and browser sessions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator

from assay.service.contract.results import Answer

Scope = Literal["read", "submit", "admin", "worker"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
LADDER = SCOPES[:3]  # Each includes those before it; `worker` is apart: no scope includes it.
MAX_DAYS = 3650  # Lifetime limit of ten years for keys that expire: later dates may overflow.
TENANT_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
NAME_PATTERN = r"^[^\x00-\x1f\x7f-\x9f]+$"  # No control characters: the name is shown in lists and logs.


def grants(scopes: Collection[str], wanted: Scope) -> bool:
    """Whether these scopes include the wanted one: `admin` includes `submit`, `submit` `read`."""
    if wanted not in LADDER:
        return wanted in scopes
    return any(LADDER.index(wanted) <= LADDER.index(scope) for scope in LADDER if scope in scopes)


class KeyRequest(BaseModel):
    """A key to be made."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, Field(min_length=1, max_length=100, pattern=NAME_PATTERN)]
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=3)]
    tenant: Annotated[str, Field(pattern=TENANT_PATTERN)] | None = None
    expires_days: Annotated[int, Field(ge=1, le=MAX_DAYS)] | None = None

    @field_validator("scopes")
    @classmethod
    def _worker_alone(cls, scopes: list[Scope]) -> list[Scope]:
        if "worker" in scopes and len(scopes) > 1:
            raise ValueError("a key of workers has the scope worker alone")
        return scopes


class Key(Answer):
    """A key without its secret. Times are ISO 8601 in UTC; null means never."""

    id: str
    name: str
    prefix: str
    scopes: list[Scope]
    tenant: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None


class NewKey(Key):
    """A new key; its text is shown this once and stored nowhere."""

    key: str


class SessionRequest(BaseModel):
    """A key, to be exchanged for a browser session."""

    model_config = ConfigDict(extra="forbid", strict=True)

    key: Annotated[str, Field(max_length=200)]


class Session(Answer):
    """A browser session. `csrf_token` goes into the header `X-CSRF-Token` of calls that change state."""

    csrf_token: str
    expires_at: str
    key_id: str
    name: str
    scopes: list[Scope]
    tenant: str
