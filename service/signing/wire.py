"""Answers about signatures: the envelope around signed results, and the public keys that check it."""

from __future__ import annotations

from typing import Literal

from assay.service.contract.results import Answer


class EnvelopeSignature(Answer):
    """One signature of an envelope: the id of the key, and 64 bytes in base64."""

    keyid: str
    sig: str


class Envelope(Answer):
    """A DSSE envelope: `payload` is an in-toto statement in base64.

    The signature is over `"DSSEv1 " + len(type) + " " + type + " " + len(payload) + " " + payload`, with the
    payload's decoded bytes and lengths in bytes.
    """

    payloadType: Literal["application/vnd.in-toto+json"]  # noqa: N815 (the name in the DSSE specification)
    payload: str
    signatures: list[EnvelopeSignature]


class PublicKey(Answer):
    """An Ed25519 key as a JSON Web Key (RFC 8037); `kid` is its thumbprint (RFC 7638).

    `status` is `signing` now, `verify_only` for earlier keys, with signatures that still count.
    """

    kty: Literal["OKP"] = "OKP"
    crv: Literal["Ed25519"] = "Ed25519"
    x: str
    kid: str
    use: Literal["sig"] = "sig"
    alg: Literal["EdDSA"] = "EdDSA"
    status: Literal["signing", "verify_only"]


class KeySet(Answer):
    """A JSON Web Key Set: the key that signs now is the first key."""

    keys: list[PublicKey]
