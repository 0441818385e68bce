"""Presigned addresses: those of Amazon's own signer, and without secrets in their text."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from assay.service.files.presigned import S3Place

PLACE = S3Place("bucket", "a/b", "http://127.0.0.1:9000", "eu-central-1", "AKIAEXAMPLE", "secret/+key")
AT = 1_800_000_000.0


@pytest.mark.parametrize("token", ["", "session+token/="])
@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("GET", {}),
        (
            "PUT",
            {"content-length": "3", "x-amz-checksum-sha256": "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0="},
        ),
        ("HEAD", {"x-amz-checksum-mode": "ENABLED"}),
    ],
)
def test_the_signature_is_that_of_botocore(monkeypatch: Any, method: str, headers: Any, token: str) -> None:
    from botocore import auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    place = S3Place(**{**vars(PLACE), "session_token": token})
    moment = datetime.datetime.fromtimestamp(AT, datetime.UTC)
    monkeypatch.setattr(auth, "get_current_datetime", lambda: moment)
    key = "01jd/file name+=.csv"
    request = AWSRequest(method, f"{place.endpoint}/bucket/a/b/01jd/file%20name%2B%3D.csv", headers)
    known = Credentials(place.access_key_id, place.secret_access_key, token or None)
    auth.S3SigV4QueryAuth(known, "s3", place.region, 600).add_auth(request)
    found, wanted = place.presigned(method, key, headers, 600, AT), request.url
    assert found.partition("?")[0] == wanted.partition("?")[0]
    assert sorted(found.partition("?")[2].split("&")) == sorted(wanted.partition("?")[2].split("&"))


def test_secrets_are_in_no_text() -> None:
    assert "secret" not in repr(PLACE)
    assert PLACE.secret_access_key not in PLACE.presigned("GET", "x", {}, 600, AT)
