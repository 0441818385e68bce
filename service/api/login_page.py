"""Login page: what a browser gets in place of a page that needs a key.

It has no script and fetches nothing. Its referrer policy is not `no-referrer`: browsers then send
`Origin: null` with the form, which the host guard refuses.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from html import escape
from pathlib import Path
from string import Template

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, Response
from starlette.types import Scope

from assay.service.api.errors import CHALLENGE
from assay.service.contract.errors import TooManyRequests

ACTION = "/api/v1/session"
# Of a browser without a key.
ASKED = "Log in with your API key, which begins with assay_. If you have none, ask who runs this service."
HOME = "/"
# A path of this service: `//host` and `/\host` would lead a browser elsewhere.
OWN_PATH = re.compile(r"/(?![/\\])[!-\[\]-~]{0,1000}", re.ASCII)
# As `dashboard/static/style.css`, which needs a login like everything else.
STYLE = Path(__file__).with_name("login.css").read_text(encoding="utf-8").replace("\n", "")
STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{STYLE_HASH}'; form-action 'self'; base-uri 'none';"
        " frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Vary": "Accept, Authorization, Cookie",
}
PAGE = Template(Path(__file__).with_name("login.html").read_text(encoding="utf-8"))


def wanted(scope: Scope) -> bool:
    """Whether a browser opens the page: its `Accept` header asks for HTML."""
    return scope["method"] == "GET" and "text/html" in Headers(scope=scope).get("accept", "").lower()


def path_of(scope: Scope) -> str:
    """The path and query of a request, to which the form returns."""
    query = scope.get("query_string", b"").decode("latin-1")
    return own_path(scope["path"] + (f"?{query}" if query else ""))


def own_path(path: str) -> str:
    """The path, or the overview's when it could lead out of this service."""
    return path if OWN_PATH.fullmatch(path) else HOME


def login_response(message: str, path: str, limited: TooManyRequests | None = None) -> Response:
    """The page, with status 401; with 429 and the seconds to wait after too many failed logins."""
    text = message if limited is None else limited.message
    page = PAGE.substitute(
        style=STYLE, action=ACTION, message=escape(text), path=escape(own_path(path), quote=True)
    )
    answer = HTMLResponse(page, status_code=401, headers={**CHALLENGE, **HEADERS})
    if limited is not None:
        answer.status_code = limited.status
        answer.headers["Retry-After"] = str(math.ceil(limited.retry_after))
        del answer.headers["WWW-Authenticate"]
    return answer
