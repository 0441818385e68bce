"""What is signed: an in-toto statement in canonical JSON (RFC 8785), inside a DSSE envelope."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from assay.service.contract.results import Results
from assay.service.files.canonical_json import canonical
from assay.service.files.job_files import RESERVED, RESULTS_FILE
from assay.service.signing.keys import key_id
from assay.service.signing.wire import Envelope, EnvelopeSignature

PAYLOAD_TYPE: Literal["application/vnd.in-toto+json"] = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:assay:results:v1"
ALGORITHM = "Ed25519"


@dataclass(frozen=True)
class SignedFile:
    """A file of the job: its name, size in bytes and sha256 in hexadecimal digits."""

    name: str
    size: int
    sha256: str


def content_of(results: Results) -> dict[str, Any]:
    """The part of the results that is signed: all but the link to their signature and the sentence."""
    # Results of earlier versions have none, and keep the content that was signed.
    left_out: dict[str, Any] = {"signature": True, "headline": True}
    if not results.bracket:
        left_out["bracket"] = True
    if results.provenance is not None and results.provenance.design is None:
        left_out["provenance"] = {"design"}
    return results.model_dump(mode="json", exclude=left_out)


def statement(
    results: Mapping[str, Any], files: Sequence[SignedFile], *, signed_at: str, key: str
) -> dict[str, Any]:
    """The statement about results as of `content_of` and files ordered by name, without reserved names."""
    listed = sorted((file for file in files if file.name not in RESERVED), key=lambda file: file.name)
    digest = hashlib.sha256(canonical(results)).hexdigest()
    return {
        "_type": STATEMENT_TYPE,
        "subject": [
            {"name": RESULTS_FILE, "digest": {"sha256": digest}},
            *({"name": file.name, "digest": {"sha256": file.sha256}} for file in listed),
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "job": results["job"],
            "signed_at": signed_at,
            "algorithm": ALGORITHM,
            "key_id": key,
            "artifacts": [asdict(file) for file in listed],
            "results": results,
        },
    }


def sign(
    key: Ed25519PrivateKey, results: Mapping[str, Any], files: Sequence[SignedFile], signed_at: str
) -> Envelope:
    """The envelope with the signed statement; ValueError for results without a canonical form."""
    name = key_id(key.public_key())
    payload = canonical(statement(results, files, signed_at=signed_at, key=name))
    signature = key.sign(pre_authentication(payload))
    return Envelope(
        payloadType=PAYLOAD_TYPE,
        payload=base64.b64encode(payload).decode(),
        signatures=[EnvelopeSignature(keyid=name, sig=base64.b64encode(signature).decode())],
    )


def pre_authentication(payload: bytes) -> bytes:
    """The bytes that are signed: DSSE's encoding of type and payload, which no other protocol has."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
