"""Forms of the dashboard's pages, which work without JavaScript.

In a browser session a form carries the session's token against forged calls in the field `csrf_token`: the
key guard leaves the check of such bodies to this module. Every route outside `/api` that changes something
must depend on `FormDep` (`tests/service/dashboard/test_forms.py` walks over them).
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from assay.service.api.caller import actor_in, caller_in
from assay.service.contract.errors import Forbidden, MalformedJson, UnsupportedMediaType

CONTENT_TYPE = "application/x-www-form-urlencoded"
TOKEN = "csrf_token"  # noqa: S105 (the name of a field)
MAX_FIELDS = 540
LISTED = "job"  # Ids of chosen jobs, read as a text with commas.


async def form_fields(request: Request) -> Mapping[str, str]:
    """The fields of a form, each given once but `LISTED`, without its token.

    Raises UnsupportedMediaType: the body is no form; MalformedJson: it cannot be read; Forbidden: the
    session's token is missing or wrong.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != CONTENT_TYPE:
        raise UnsupportedMediaType(f"the Content-Type is {content_type[:60]!r}; allowed: {CONTENT_TYPE}")
    try:
        text = (await request.body()).decode("ascii")
        found = parse_qs(text, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError:
        raise MalformedJson(f"the body is not a form of at most {MAX_FIELDS} fields in UTF-8") from None
    if twice := [name for name, values in found.items() if len(values) > 1 and name != LISTED]:
        raise MalformedJson(f"the field {twice[0][:100]!r} is given more than once")
    fields = {name: ",".join(values) for name, values in found.items()}
    await _check_token(request, fields.pop(TOKEN, ""))
    return fields


async def _check_token(request: Request, token: str) -> None:
    caller = caller_in(request.scope)
    if caller.session is None:
        return
    if not hmac.compare_digest(token.encode(), caller.session.csrf.encode()):
        message = f"a form needs the session's token in its field {TOKEN}: load the page again"
        by = actor_in(request.scope, caller)
        refusals = request.app.state.refusals
        await run_in_threadpool(refusals.access, by, request.method, request.url.path, message)
        raise Forbidden(message)


FormDep = Annotated[Mapping[str, str], Depends(form_fields)]


def see(path: str) -> Response:
    """Sends the browser to another page after a form."""
    return RedirectResponse(path, status_code=303, headers={"Cache-Control": "no-store"})
