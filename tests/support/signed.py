"""A job's results with every kind of value, signed by a key made here."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from assay.service.files.job_files import SIGNATURE_FILE
from assay.service.signing.keys import key_id
from assay.service.signing.statement import PAYLOAD_TYPE, SignedFile, pre_authentication, sign
from assay.service.signing.wire import Envelope

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
KEYS: dict[str, Ed25519PublicKey] = {key_id(KEY.public_key()): KEY.public_key()}
SIGNED_AT = "2026-11-22T14:00:00.000Z"
CSV = b"id,correct\nx0,1\n"
RESULTS: dict[str, Any] = {
    "job": "01jd3q0x5v8f7m2n9k4t6w1z0y",
    "complete": True,
    "evaluations": [
        {
            "name": "pgd",
            "params": {"epsilon": "2/255", "steps": 20, "restarts": 1, "targeted": False},
            "metrics": {
                "top1": {
                    "value": 0.8138888888888889,
                    "n": 360,
                    "ci_low": 0.7703,
                    "ci_high": 1e-7,
                    "unit": None,
                },
                "operations": {"value": 1e20, "n": 1, "ci_low": 1.5e300, "ci_high": 5e-324},
            },
            "warnings": [],
            "seconds": 1.0,
            "forward_passes": 9007199254740991,
        }
    ],
    "warnings": [{"code": "few_examples", "message": "fünf “Beispiele” \n€ 😀", "evidence": {}}],
    "error": None,
    "provenance": {"spec": {}, "seed": 2**63 - 1, "other_seed": 10**17, "weights_sha256": "0" * 64},
}


def file(name: str = "outcomes-000-pgd.csv", content: bytes = CSV) -> SignedFile:
    import hashlib

    return SignedFile(name, len(content), hashlib.sha256(content).hexdigest())


def signature(
    results: dict[str, Any] = RESULTS, files: tuple[SignedFile, ...] = (file(),), key: Ed25519PrivateKey = KEY
) -> bytes:
    """The content of `signature.json`."""
    return sign(key, results, files, SIGNED_AT).model_dump_json(indent=2).encode()


def signed_anew(payload: bytes) -> bytes:
    """An envelope of the same key around other bytes."""
    sig = base64.b64encode(KEY.sign(pre_authentication(payload))).decode()
    entry = {"keyid": next(iter(KEYS)), "sig": sig}
    body = {"payloadType": PAYLOAD_TYPE, "payload": base64.b64encode(payload).decode(), "signatures": [entry]}
    return Envelope.model_validate(body).model_dump_json().encode()


def save(folder: Path, results: bytes | None = None) -> None:
    """The files as a user has them."""
    (folder / SIGNATURE_FILE).write_bytes(signature())
    (folder / "outcomes-000-pgd.csv").write_bytes(CSV)
    if results is not None:
        (folder / "results.json").write_bytes(results)


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every place of a JSON value that holds no other places."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    empty = True
    for name, item in items:
        empty = False
        yield from leaves(item, (*path, name))
    if empty:
        yield path, value


def with_leaf(value: Any, path: tuple[str | int, ...], change: Callable[[Any], Any]) -> Any:
    """The value with another one in one place."""
    if not path:
        return change(value)
    name, *rest = path
    if isinstance(value, dict):
        return {
            key: with_leaf(item, tuple(rest), change) if key == name else item for key, item in value.items()
        }
    return [with_leaf(item, tuple(rest), change) if i == name else item for i, item in enumerate(value)]
