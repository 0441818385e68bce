"""Frame of the dashboard's pages: templates, headers, and the parts that every page shows.

Pages are rendered on the server and work without JavaScript, except live updates, sorting and interactive
plots. Scripts and styles are files of `static/`: the content security policy allows none in a page.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from assay.service import features
from assay.service.api.caller import CALLER, Caller
from assay.service.contract.errors import AssayError
from assay.service.contract.keys import grants
from assay.service.contract.problems import path_text
from assay.service.contract.warning_codes import SEVERITIES
from assay.service.dashboard import formats
from assay.service.plots.sizes import usual_size

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    # Not `no-referrer`: browsers then send `Origin: null` with a form, which the host guard refuses.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Vary": "Accept, Accept-Encoding, Authorization, Cookie",
}
STATIC = "/static"
MIN_COMPRESSED = 1000
# Path and name of the core's pages in the navigation.
NAVIGATION = (
    ("/", "Overview"),
    ("/jobs", "Jobs"),
    ("/submit", "Submit"),
    ("/compare", "Compare"),
    ("/catalog", "Catalog"),
)

Kept = TypeVar("Kept")


def render(
    request: Request, template: str, values: Mapping[str, Any] | None = None, *, status: int = 200
) -> Response:
    """A page; the values have its `title`, and as `section` the path of its entry in the navigation."""
    caller = request.scope.get(CALLER)
    known = caller if isinstance(caller, Caller) else Caller()
    shared = {
        "navigation": navigation(),
        "path": request.url.path,
        "session": known.session,
        "key": known.key,
        "may_submit": known.key is None or grants(known.key.scopes, "submit"),
        "is_admin": known.key is None or grants(known.key.scopes, "admin"),
        "version": request.app.version,
        "severities": SEVERITIES,
    }
    html = _environment().get_template(template).render({**shared, **(values or {})})
    return _answer(request, html.encode(), status)


@cache
def navigation() -> tuple[tuple[str, str], ...]:
    """Path and name of all pages in the navigation: a feature's before the page that the feature names."""
    listed = [*NAVIGATION]
    for module in features.modules("pages"):
        if module.NAVIGATION is None:
            continue
        following = (place for place, (path, _) in enumerate(listed) if path == module.BEFORE)
        listed.insert(next(following, len(listed)), module.NAVIGATION)
    return tuple(listed)


def made_once(app: FastAPI, kind: type[Kept]) -> Kept:
    """The application's object of a class, such as what its pages remember; made at first use."""
    made: dict[type, Any] = app.state.made_once
    found: Kept = made[kind] if kind in made else made.setdefault(kind, kind())
    return found


def error_page(request: Request, error: AssayError) -> Response:
    """An error as a page, for a browser."""
    headline = error.message
    if error.details:
        first = error.details[0]
        said = re.escape(first.message)
        told = rf"({re.escape(path_text(first.loc))}: )?{said}( \(and \d+ more\))?"
        headline = "" if re.fullmatch(told, headline) else headline
    values = {"title": error.type.replace("_", " "), "section": "", "error": error, "headline": headline}
    return render(request, "error.html", values, status=error.status)


def compile_templates() -> None:
    """Compiles every template and reads every static file: once a process, about half a second."""
    environment = _environment()
    for name in environment.list_templates():
        environment.get_template(name)
    for file in (resources.files("assay.service.dashboard") / "static").iterdir():
        static_file(file.name)


def static_url(name: str) -> str:
    """The address of a file of `static/`, which changes with its content."""
    return f"{STATIC}/{name}?v={static_file(name)[1]}"


@cache
def static_file(name: str) -> tuple[bytes, str]:
    """The content of a file of `static/`, and the first digits of its hash."""
    content = (resources.files("assay.service.dashboard") / "static" / name).read_bytes()
    return content, hashlib.sha256(content).hexdigest()[:12]


def compressed(request: Request, body: bytes) -> tuple[bytes, dict[str, str]]:
    """The body as the browser takes it, and the header that says so."""
    accepted = request.headers.get("accept-encoding", "").lower()
    if len(body) < MIN_COMPRESSED or "gzip" not in accepted:
        return body, {}
    return gzip.compress(body, 5, mtime=0), {"Content-Encoding": "gzip"}


def _answer(request: Request, body: bytes, status: int) -> Response:
    content, encoding = compressed(request, body)
    return HTMLResponse(content, status_code=status, headers={**HEADERS, **encoding})


@cache
def _environment() -> Environment:
    packages = ["assay.service.dashboard", *(module.__package__ for module in features.modules("pages"))]
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(formats.FILTERS)
    environment.filters["usual_size"] = usual_size
    environment.globals["static"] = static_url
    return environment
