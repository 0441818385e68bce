"""All errors visible to users of the service.

    AssayError
    ├── MalformedJson        400 malformed_json
    ├── MalformedRequest     400 malformed_request
    ├── Unauthorized         401 unauthorized
    ├── Forbidden            403 forbidden
    ├── NotFound             404 not_found
    ├── MethodNotAllowed     405 method_not_allowed
    ├── RequestTimeout       408 request_timeout
    ├── InvalidState         409 invalid_state
    ├── NoResults            409 no_results
    ├── TooLarge             413 too_large
    ├── UnsupportedMediaType 415 unsupported_media_type
    ├── InvalidSpec          422 invalid_spec
    │   └── WeightsUnavailable   422 weights_unavailable
    ├── IdempotencyMismatch  422 idempotency_mismatch
    ├── TooManyRequests      429 too_many_requests
    ├── HeadersTooLarge      431 headers_too_large
    ├── Internal             500 internal
    └── Unavailable          503 unavailable

All of them leave the service in one shape:
`{"error": {"type", "message", "details": [{"loc", "message", "given", "allowed", "nearest"}]}}`, or,
where the request's Accept header prefers `application/problem+json`, in the shape of RFC 9457.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


class ErrorDetail(BaseModel):
    """One wrong field: where it is, what was given, what is allowed, and the nearest known name."""

    model_config = ConfigDict(extra="forbid")

    loc: list[str | int]
    message: str
    given: Any = None
    allowed: Any = None
    nearest: str | None = None


class ErrorBody(BaseModel):
    """The inner object of an error answer."""

    model_config = ConfigDict(extra="forbid")

    type: str
    message: str
    details: list[ErrorDetail] = []


class ErrorEnvelope(BaseModel):
    """The JSON of every answer with a status of 400 or more."""

    model_config = ConfigDict(extra="forbid")

    error: ErrorBody


class Problem(BaseModel):
    """An error as `application/problem+json` (RFC 9457): `details` are the same as in the envelope."""

    model_config = ConfigDict(extra="forbid")

    type: str
    title: str
    status: int
    detail: str
    instance: str
    details: list[ErrorDetail] = []


class AssayError(Exception):
    """Base of the tree: a message for a person, a type for a program, details for a form."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "internal"

    def __init__(self, message: str, details: Sequence[ErrorDetail] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.details = list(details)

    def __str__(self) -> str:
        """The message, with the nearest known name of its first detail: for whoever reads a traceback."""
        near = self.details[0].nearest if self.details else None
        if near is None or "did you mean" in self.message:
            return self.message
        before, found, after = self.message.partition(self.details[0].message)
        return f"{before}{found}; did you mean {near!r}?{after}"

    def envelope(self) -> ErrorEnvelope:
        """The answer that the service sends."""
        return ErrorEnvelope(error=ErrorBody(type=self.type, message=self.message, details=self.details))

    def problem(self, instance: str) -> Problem:
        """The answer in the form of RFC 9457 to the request of the path `instance`."""
        return Problem(
            type=f"urn:assay:error:{self.type}",
            title=self.type.replace("_", " "),
            status=self.status,
            detail=self.message,
            instance=instance,
            details=self.details,
        )


class MalformedJson(AssayError):
    """The body is not JSON, or JSON that no spec could be (too deep, NaN, infinity)."""

    status = 400
    type = "malformed_json"


class MalformedRequest(AssayError):
    """This is no HTTP/1.1, or it says two things at once: two Host headers, two lengths."""

    status = 400
    type = "malformed_request"


class Unauthorized(AssayError):
    """No key, or one that is unknown, expired or revoked."""

    status = 401
    type = "unauthorized"


class Forbidden(AssayError):
    """The key lacks the scope, or the request comes from where it may not."""

    status = 403
    type = "forbidden"


class NotFound(AssayError):
    """No such job, component, artifact or route, or none that this key may see."""

    status = 404
    type = "not_found"


class MethodNotAllowed(AssayError):
    """The route exists, but not for this method."""

    status = 405
    type = "method_not_allowed"


class RequestTimeout(AssayError):
    """The header or the body of the request came too slowly."""

    status = 408
    type = "request_timeout"


class InvalidState(AssayError):
    """The state does not allow the call, for example cancelling a finished job."""

    status = 409
    type = "invalid_state"


class NoResults(AssayError):
    """The job exists, but no evaluation of it has finished yet."""

    status = 409
    type = "no_results"


class TooLarge(AssayError):
    """The body is over the size cap."""

    status = 413
    type = "too_large"


class UnsupportedMediaType(AssayError):
    """The Content-Type of the body is none that the route reads."""

    status = 415
    type = "unsupported_media_type"


class InvalidSpec(AssayError):
    """At least one field is wrong; every wrong field is in the details."""

    status = 422
    type = "invalid_spec"


class WeightsUnavailable(InvalidSpec):
    """The weights are not pulled, and nothing else is wrong; the message ends with the command for it."""

    type = "weights_unavailable"


class IdempotencyMismatch(AssayError):
    """The Idempotency-Key was used before with another body."""

    status = 422
    type = "idempotency_mismatch"


class TooManyRequests(AssayError):
    """Over a limit; `Retry-After` says when to try again, `RateLimit` which limit of the tenant it is."""

    status = 429
    type = "too_many_requests"

    def __init__(
        self,
        message: str,
        details: Sequence[ErrorDetail] = (),
        *,
        retry_after: float = 5.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, details)
        self.retry_after = retry_after
        self.headers = dict(headers or {})


class HeadersTooLarge(AssayError):
    """The header of the request is over the size cap."""

    status = 431
    type = "headers_too_large"


class Internal(AssayError):
    """A defect of the service; the message carries an id that is in the log."""


class Unavailable(AssayError):
    """The database is away, or went away before it answered."""

    status = 503
    type = "unavailable"


def nearest_name(given: str, known: Iterable[str]) -> str | None:
    """The known name that is most like the given one, else the shortest that begins with it; or None."""
    names = list(known)
    longer = [name for name in names if len(given) > 2 and name.startswith(given)]
    return next(iter(difflib.get_close_matches(given, names, n=1) or sorted(longer, key=len)), None)
