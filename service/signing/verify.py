"""Checks a signature, and names what differs from what was signed. Reads no network and no clock."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import ValidationError

from assay.service.contract.problems import message_of, path_text
from assay.service.files.canonical_json import MAX_INTEGER, canonical
from assay.service.signing.statement import (
    PREDICATE_TYPE,
    STATEMENT_TYPE,
    SignedFile,
    pre_authentication,
    statement,
)
from assay.service.signing.wire import Envelope

MAX_DIFFERENCES = 20
MAX_SHOWN = 80
MAX_INTEGER_DIGITS = 300  # what a float can hold
MISSING = object()


class BadSignature(ValueError):
    """The signature does not hold; the message says why."""


@dataclass(frozen=True)
class Signed:
    """What a valid signature says."""

    job: str  # id of the job
    key_id: str  # the key that signed
    signed_at: str  # when, by the service's clock
    results: dict[str, Any]  # the results without the link to their signature
    files: dict[str, SignedFile]  # the job's files by name


def opened(raw: bytes, keys: Mapping[str, Ed25519PublicKey]) -> Signed:
    """The statement in an envelope that a trusted key signed, by its id; BadSignature for any other."""
    try:
        envelope = Envelope.model_validate(parsed(raw))
    except ValidationError as error:
        first = error.errors()[0]
        raise BadSignature(
            f"no envelope of a signature: {path_text(first['loc'])}: {message_of(first)}"
        ) from None
    if len(envelope.signatures) != 1:
        raise BadSignature(f"the envelope has {len(envelope.signatures)} signatures; allowed: one")
    (entry,) = envelope.signatures
    key = keys.get(entry.keyid)
    if key is None:
        known = ", ".join(sorted(keys)) or "none"
        raise BadSignature(f"signed by key {entry.keyid[:60]!r}, which is not trusted here; trusted: {known}")
    payload, signature = _bytes("payload", envelope.payload), _bytes("sig", entry.sig)
    try:
        key.verify(signature, pre_authentication(payload))
    except InvalidSignature:
        raise BadSignature(
            f"the signature is not of this statement by key {entry.keyid}: one of the two was changed"
        ) from None
    return _read(payload, entry.keyid)


def _read(payload: bytes, key: str) -> Signed:
    content = parsed(payload, canonical_form=True)
    try:
        kinds = (content["_type"], content["predicateType"])
        predicate = content["predicate"]
        files = [SignedFile(**file) for file in predicate["artifacts"]]
        results, signed_at = predicate["results"], predicate["signed_at"]
        expected = statement(results, files, signed_at=signed_at, key=key)
    except (KeyError, TypeError):
        raise BadSignature("the signed statement is not about results") from None
    if kinds != (STATEMENT_TYPE, PREDICATE_TYPE):
        raise BadSignature(
            f"the signed statement is of type {str(kinds[1])[:60]!r}; allowed: {PREDICATE_TYPE!r}"
        )
    # Its parts repeat each other for readers of other kinds; they must not contradict each other.
    for place in differences(expected, content):
        raise BadSignature(f"the signed statement contradicts itself: {place}")
    return Signed(
        job=str(predicate["job"]),
        key_id=key,
        signed_at=str(signed_at),
        results=results,
        files={file.name: file for file in files},
    )


def _bytes(name: str, text: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise BadSignature(f"the envelope's {name} is not base64") from None
    if base64.b64encode(data).decode() != text:  # The last character may have bits that decoding ignores.
        raise BadSignature(f"the envelope's {name} is not base64 in its one form")
    return data


def parsed(raw: bytes, *, canonical_form: bool = False) -> Any:
    """JSON as compared with what was signed: no digit rounded, no key twice; BadSignature for other texts."""
    try:
        value = json.loads(
            raw.decode(),
            parse_float=_exact,
            parse_int=_canonical_integer if canonical_form else _integer,
            parse_constant=_no_constant,
            object_pairs_hook=_object,
        )
        canonical(value)  # what has no canonical form cannot be compared
    except BadSignature:
        raise
    except RecursionError:
        raise BadSignature("no results of Assay: nested too deeply") from None
    except ValueError as error:
        raise BadSignature(f"not JSON: {error}") from None
    return value


def _exact(text: str) -> float:
    value = float(text)
    if Decimal(text) != Decimal(repr(value)):
        raise BadSignature(
            f"the number {text[:60]} has digits that no result has; the nearest one is {value!r}"
        )
    return value


def _integer(text: str) -> int:
    if len(text) > MAX_INTEGER_DIGITS:
        raise BadSignature(f"an integer has {len(text)} digits; no result has so many")
    return int(text)


def _canonical_integer(text: str) -> int | float:
    value = _integer(text)
    return value if abs(value) <= MAX_INTEGER else _exact(text)


def _no_constant(name: str) -> NoReturn:
    raise BadSignature(f"{name} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise BadSignature("a key is given twice in one object")
    return members


def result_problems(signed: Signed, raw: bytes) -> list[str]:
    """What differs between saved results (`assay results --format json`) and the signed ones."""
    try:
        given = parsed(raw)
    except BadSignature as error:
        return [str(error)]
    if not isinstance(given, dict):
        return ["no results: not a JSON object"]
    # As `statement.content_of` leaves them out.
    left_out = {"signature", "headline"} | (set() if given.get("bracket") else {"bracket"})
    content = {name: item for name, item in given.items() if name not in left_out}
    made = content.get("provenance")
    if isinstance(made, dict) and made.get("design") is None:
        content["provenance"] = {name: item for name, item in made.items() if name != "design"}
    found: list[str] = []
    for place in differences(signed.results, content):
        if len(found) == MAX_DIFFERENCES:
            return [*found, "and more"]
        found.append(place)
    return found


def file_problem(signed: Signed, path: Path) -> str | None:
    """What differs between a file of the job and what was signed of it, or None."""
    wanted = signed.files.get(path.name)
    if wanted is None:
        return "not among the signed files"
    size, digest = 0, hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            size += len(chunk)
            digest.update(chunk)
    if size != wanted.size:
        return f"has {size} bytes, signed {wanted.size}"
    if digest.hexdigest() != wanted.sha256:
        return f"has sha256 {digest.hexdigest()}, signed {wanted.sha256}"
    return None


def differences(signed: Any, given: Any, path: tuple[str | int, ...] = ()) -> Iterator[str]:
    """A line for each place where two JSON values differ."""
    if isinstance(signed, dict) and isinstance(given, dict):
        for name in [*signed, *(name for name in given if name not in signed)]:
            yield from differences(signed.get(name, MISSING), given.get(name, MISSING), (*path, name))
    elif isinstance(signed, list) and isinstance(given, list):
        for index in range(max(len(signed), len(given))):
            ours, theirs = (items[index] if index < len(items) else MISSING for items in (signed, given))
            yield from differences(ours, theirs, (*path, index))
    elif signed is MISSING:
        yield f"{path_text(path)} is {_shown(given)}, and was not signed"
    elif given is MISSING:
        yield f"{path_text(path)} is missing, signed {_shown(signed)}"
    elif not _same(signed, given):
        yield f"{path_text(path)} is {_shown(given)}, signed {_shown(signed)}"


def _same(signed: Any, given: Any) -> bool:
    number = isinstance(signed, float | int) and isinstance(given, int) and abs(given) > MAX_INTEGER
    if number and Decimal(repr(float(given))) == given:
        given = float(given)  # a large float in its canonical form
    return canonical(signed) == canonical(given)


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
