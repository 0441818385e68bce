"""Routes of API keys, for keys with the scope `admin`."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from fastapi import Depends, Path, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from assay.service.api.authentication import KEYS_PATH
from assay.service.api.caller import ActorDep, administrator
from assay.service.api.deps import BodyDep, SettingsDep, StrictRouter, SystemStoreDep, json_body
from assay.service.api.errors import documented
from assay.service.api.views import view
from assay.service.contract.errors import InvalidState, MalformedJson, NotFound, UnsupportedMediaType
from assay.service.contract.keys import Key, KeyRequest, NewKey
from assay.service.contract.results import Page
from assay.service.store.rows import KeyRow

Model = TypeVar("Model", bound=BaseModel)
DAY_SECONDS = 86400


def keys_used(settings: SettingsDep) -> None:
    """A dependency that refuses key management where no keys are required.

    Anyone who reaches such a service could make a key that works once keys are required.
    """
    if not settings.keys_required:
        raise InvalidState(
            "this service asks for no keys; its operator manages them with `assay keys --state PATH`"
        )


GUARDED = [Depends(keys_used), Depends(administrator)]
router = StrictRouter(prefix=KEYS_PATH, tag="keys", dependencies=GUARDED)


@router.get("", summary="List the API keys", responses=documented(InvalidState))
def list_keys(store: SystemStoreDep) -> Page[Key]:
    """All keys, the revoked and expired ones too, without their secrets."""
    return Page(items=[key_view(row) for row in store.keys.list()])


@router.post(
    "",
    summary="Make an API key",
    status_code=201,
    responses=documented(MalformedJson, UnsupportedMediaType, InvalidState),
    openapi_extra=json_body(KeyRequest),
)
def create_key(body: BodyDep, store: SystemStoreDep, by: ActorDep, response: Response) -> NewKey:
    """The answer has the key's text, which cannot be had again."""
    request = validated(KeyRequest, body)
    days = request.expires_days
    row, text = store.keys.create(
        request.name,
        request.scopes,
        tenant=request.tenant,
        expires_seconds=None if days is None else days * DAY_SECONDS,
        by=by,
    )
    response.headers["Cache-Control"] = "no-store"
    return NewKey(**key_view(row).model_dump(), key=text)


@router.delete(
    "/{key_id}", summary="Revoke an API key", status_code=204, responses=documented(NotFound, InvalidState)
)
def revoke_key(
    key_id: Annotated[str, Path(description="the key's id")], store: SystemStoreDep, by: ActorDep
) -> None:
    """The key and its sessions open nothing from now on; its jobs stay."""
    store.keys.revoke(key_id, by=by)


def validated(model: type[Model], body: Any) -> Model:
    """The body as a model; its errors are reported like any other parameter's."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False)) from None


def key_view(row: KeyRow) -> Key:
    """A key as users see it."""
    return view(Key, row)
