"""The Python client's calls for signatures."""

from __future__ import annotations

from assay.service.client.transport import API, Connection, parsed, part
from assay.service.signing.wire import KeySet


class SignatureCalls(Connection):
    """Fetches signatures and the keys that check them."""

    def signature(self, job_id: str) -> bytes:
        """Bytes of `signature.json` of complete results; InvalidState for incomplete results."""
        return self._call("GET", f"{API}/jobs/{part(job_id)}/signature").content

    def signing_keys(self) -> KeySet:
        """The service's public keys, which check signatures; needs no API key."""
        return parsed(KeySet, self._json("GET", "/.well-known/assay-keys"))
