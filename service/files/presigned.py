"""Presigned addresses of S3: a call for an object that carries its own permission, for some minutes.

AWS Signature Version 4 in the query ("Authenticating Requests: Using Query Parameters", Amazon S3 API
reference): every header of the call but those that the network adds is signed, the body is not.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode, urlsplit

ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True)
class S3Place:
    """A prefix of a bucket, and the key to it. Neither its text nor an error's has the secrets."""

    bucket: str
    prefix: str
    endpoint: str  # http(s)://host[:port]
    region: str
    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)

    def path(self, key: str) -> str:
        """The path of `key`, below the prefix, as in an address."""
        return quote(f"/{self.bucket}/{self.prefix}/{key}".replace("//", "/"), safe="/-_.~")

    def presigned(
        self,
        method: str,
        key: str,
        headers: Mapping[str, str],
        seconds: int,
        at: float | None = None,
        query: Mapping[str, str] | None = None,
    ) -> str:
        """The address of a call to `key`, below the prefix; `headers`, of lower-case names, are signed."""
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at))
        scope = f"{moment[:8]}/{self.region}/s3/aws4_request"
        path = self.path(key)
        signed = dict(sorted({**headers, "host": urlsplit(self.endpoint).netloc}.items()))
        facts = {
            **(query or {}),
            "X-Amz-Algorithm": ALGORITHM,
            "X-Amz-Credential": f"{self.access_key_id}/{scope}",
            "X-Amz-Date": moment,
            "X-Amz-Expires": str(seconds),
            "X-Amz-SignedHeaders": ";".join(signed),
            **({"X-Amz-Security-Token": self.session_token} if self.session_token else {}),
        }
        text = urlencode(sorted(facts.items()), quote_via=quote, safe="-_.~")
        lines = [f"{name}:{value}" for name, value in signed.items()]
        request = "\n".join([method, path, text, *lines, "", ";".join(signed), "UNSIGNED-PAYLOAD"])
        digest = hashlib.sha256(request.encode()).hexdigest()
        mark = f"AWS4{self.secret_access_key}".encode()
        for part in (*scope.split("/"), f"{ALGORITHM}\n{moment}\n{scope}\n{digest}"):
            mark = hmac.digest(mark, part.encode(), "sha256")
        return f"{self.endpoint}{path}?{text}&X-Amz-Signature={mark.hex()}"
