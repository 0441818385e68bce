"""What comes back to the client: errors by their class, answers by their model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from assay.service.contract import errors

Model = TypeVar("Model", bound=BaseModel)


class Unreachable(errors.Unavailable):
    """Nothing answers at the address, or the connection broke."""

    type = "unreachable"


class BadAnswer(errors.AssayError):
    """What answered is not this service, or a download does not have its hash."""

    type = "bad_answer"


def _tree(kind: type[errors.AssayError]) -> Iterator[type[errors.AssayError]]:
    for child in kind.__subclasses__():
        yield child
        yield from _tree(child)


ERRORS = {kind.type: kind for kind in _tree(errors.AssayError) if kind.__module__ == errors.__name__}


def authorization(key: str) -> dict[str, str]:
    """The header that sends an API key; none for an empty one.

    Raises:
        Unauthorized: what was given cannot be a key; it is not repeated.
    """
    if not key:
        return {}
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise errors.Unauthorized("the API key holds spaces or other characters that no key has")
    return {"Authorization": f"Bearer {key}"}


@contextmanager
def reaching(url: str) -> Iterator[None]:
    """What keeps a call from an answer, as an error of this tree."""
    try:
        yield
    except httpx.LocalProtocolError as error:
        raise errors.InvalidSpec(f"this cannot be sent: {error}") from error
    except httpx.TransportError as error:
        raise Unreachable(f"no service can be reached at {url} ({type(error).__name__}: {error})") from error
    except httpx.InvalidURL as error:
        raise Unreachable(f"{url} is not an address: {error}") from error


def error_of(response: httpx.Response) -> errors.AssayError:
    """The contract's error in an answer, by its type."""
    try:
        body = errors.ErrorEnvelope.model_validate_json(response.content).error
    except ValidationError:
        return BadAnswer(f"{response.url} answers {response.status_code}, but not as an Assay service")
    kind = ERRORS.get(body.type, errors.AssayError)
    return kind(body.message, body.details)


def parsed(model: type[Model], answer: dict[str, Any]) -> Model:
    """The answer as a model; raises BadAnswer for anything else."""
    try:
        return model.model_validate(answer)
    except ValidationError as error:
        raise BadAnswer(f"the answer is not a {model.__name__} of this version: {error}") from error


def part(text: str) -> str:
    """One segment of a path: ids and names never become several, or none."""
    if text in ("", ".", ".."):
        raise errors.NotFound(f"{text!r} is not a name")
    return quote(text, safe="")
