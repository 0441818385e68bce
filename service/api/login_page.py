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
from string import Template

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, Response
from starlette.types import Scope

from assay.service.api.errors import CHALLENGE
from assay.service.contract.errors import TooManyRequests

ACTION = "/api/v1/session"
HOME = "/"
# A path of this service: `//host` and `/\host` would lead a browser elsewhere.
OWN_PATH = re.compile(r"/(?![/\\])[!-\[\]-~]{0,1000}", re.ASCII)
STYLE = (  # As `dashboard/static/style.css`, which needs a login like everything else.
    ":root{color-scheme:light dark;--back:#fff;--text:#16202a;--line:#44515e;--accent:#084b73;--on:#fff}"
    "@media (prefers-color-scheme:dark){"
    ":root{--back:#10161c;--text:#e9eef2;--line:#b9c4cd;--accent:#8ecbf0;--on:#0b1218}}"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:32em;margin:4em auto;padding:0 1em;"
    "background:var(--back);color:var(--text)}"
    "input,button{font:inherit;color:inherit;background:var(--back);border:1px solid var(--line);"
    "border-radius:6px;padding:.4em .7em}"
    "input{width:100%;box-sizing:border-box;margin:.5em 0}"
    "button{background:var(--accent);color:var(--on);cursor:pointer}"
    ":focus-visible{outline:3px solid #b35900;outline-offset:2px}"
)
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
PAGE = Template(f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Assay: log in</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>Assay</h1>
<p>$message</p>
<form method="post" action="{ACTION}">
<label>API key <input type="password" name="key" required autofocus autocomplete="current-password"></label>
<input type="hidden" name="next" value="$path">
<button>Log in</button>
</form>
</main>
</body>
</html>
""")


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
    page = PAGE.substitute(message=escape(text), path=escape(own_path(path), quote=True))
    answer = HTMLResponse(page, status_code=401, headers={**CHALLENGE, **HEADERS})
    if limited is not None:
        answer.status_code = limited.status
        answer.headers["Retry-After"] = str(math.ceil(limited.retry_after))
        del answer.headers["WWW-Authenticate"]
    return answer
