"""The client of an object store, and the copy of an object that S3 takes only in parts."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from assay.service.files.presigned import S3Place

CONNECT_SECONDS, RETRY_SECONDS = 5, 30
MAX_COPY_BYTES = 5 * 1024**3  # S3's limit of a copy in one call
COPY_PART = 512 * 1024**2
COPIES_AT_ONCE = 8
COPY_SECONDS = 300  # of a part
UPLOAD_ID, MARK = re.compile(r"<UploadId>([^<]+)</UploadId>"), re.compile(r"<ETag>([^<]+)</ETag>")


def client_of(place: S3Place, seconds: int, retries: int) -> Any:
    """An obstore client; calls end after so many seconds."""
    from obstore.store import S3Store

    config: dict[str, Any] = {
        "prefix": place.prefix or None,
        "endpoint": place.endpoint,
        "region": place.region,
        "access_key_id": place.access_key_id,
        "secret_access_key": place.secret_access_key,
        "virtual_hosted_style_request": False,
        "checksum_algorithm": "SHA256",
        "client_options": {
            "allow_http": place.endpoint.startswith("http://"),
            "timeout": timedelta(seconds=seconds),
            "connect_timeout": timedelta(seconds=min(seconds, CONNECT_SECONDS)),
        },
        "retry_config": {"max_retries": retries, "retry_timeout": timedelta(seconds=RETRY_SECONDS)},
    }
    if place.session_token:
        config["token"] = place.session_token
    return S3Store(place.bucket, **config)


def copy_in_parts(place: S3Place, source: str, target: str, size: int) -> None:
    """Copies an object within its store. Raises OSError or httpx.HTTPError, and leaves no parts."""
    import httpx

    with httpx.Client(timeout=COPY_SECONDS) as http:

        def call(
            method: str, query: Mapping[str, str], headers: Mapping[str, str] | None = None, body: str = ""
        ) -> str:
            signed = dict(headers or {})
            url = place.presigned(method, target, signed, COPY_SECONDS, query=query)
            answer = http.request(method, url, headers=signed, content=body)
            answer.raise_for_status()
            return answer.text

        def copy(number: int) -> str:
            start = (number - 1) * COPY_PART
            bytes_ = f"bytes={start}-{min(start + COPY_PART, size) - 1}"
            headers = {"x-amz-copy-source": place.path(source), "x-amz-copy-source-range": bytes_}
            return _part_of(MARK, call("PUT", {**upload, "partNumber": str(number)}, headers))

        upload = {"uploadId": _part_of(UPLOAD_ID, call("POST", {"uploads": ""}))}
        try:
            with ThreadPoolExecutor(COPIES_AT_ONCE, thread_name_prefix="copy") as pool:
                marks = [*pool.map(copy, range(1, -(-size // COPY_PART) + 1))]
            parts = (
                f"<Part><PartNumber>{number}</PartNumber><ETag>{html.escape(mark)}</ETag></Part>"
                for number, mark in enumerate(marks, 1)
            )
            body = f"<CompleteMultipartUpload>{''.join(parts)}</CompleteMultipartUpload>"
            _part_of(MARK, call("POST", upload, body=body))
        except BaseException:
            call("DELETE", upload)
            raise


def _part_of(pattern: re.Pattern[str], answer: str) -> str:
    """What an answer names. S3 may say 200 and then give an error."""
    found = pattern.search(answer)
    if found is None:
        raise OSError(f"the object store answers {answer[:300]!r} to a copy in parts")
    return html.unescape(found[1])
