"""The page `/docs`: Swagger UI over the OpenAPI document, from files of the package `fastapi-offline` alone.

Its application class is not used: its page has an inline script, which the policy here forbids.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from string import Template

from fastapi import FastAPI
from starlette.responses import FileResponse, HTMLResponse, Response

from assay.service.api.authentication import SESSION_PATH
from assay.service.contract.errors import NotFound

PATH = "/docs"
ASSETS = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css", "favicon.png": "image/png"}
POLICY = (  # Swagger UI writes style attributes and has its icons as data: addresses in its style sheet.
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title: the API</title>
<link rel="icon" href="$path/favicon.png">
<link rel="stylesheet" href="$path/swagger-ui.css">
</head>
<body>
<noscript>This page needs JavaScript. The same is in <a href="$openapi">$openapi</a>.</noscript>
<p><a href="/">Dashboard</a></p>
<div id="swagger-ui"></div>
<script src="$path/swagger-ui-bundle.js"></script>
<script src="$path/start.js"></script>
</body>
</html>
""")
# requestInterceptor: in a browser that is logged in, calls that change state need its session's token.
# validatorUrl: by default the page would show the document to a service on the internet.
START = Template("""SwaggerUIBundle({
  url: "$openapi",
  dom_id: "#swagger-ui",
  deepLinking: true,
  displayRequestDuration: true,
  validatorUrl: null,
  requestInterceptor: async (request) => {
    if (!["GET", "HEAD"].includes((request.method || "GET").toUpperCase())) {
      const session = await fetch("$session");
      if (session.ok) request.headers["X-CSRF-Token"] = (await session.json()).csrf_token;
    }
    return request;
  },
});
""")


def install(app: FastAPI) -> None:
    """Adds the page and its files; none of them is in the OpenAPI document."""
    values = {"title": app.title, "path": PATH, "openapi": app.openapi_url or "", "session": SESSION_PATH}
    page, start = PAGE.substitute(values), START.substitute(values)

    @app.get(PATH, include_in_schema=False)
    def docs() -> Response:
        return HTMLResponse(page, headers=HEADERS)

    @app.get(f"{PATH}/start.js", include_in_schema=False)
    def start_script() -> Response:
        return Response(start, media_type="text/javascript", headers=HEADERS)

    @app.get(f"{PATH}/{{name}}", include_in_schema=False)
    def asset(name: str) -> Response:
        if name not in ASSETS:
            raise NotFound(f"no route '{PATH}/{name[:100]}'; see {PATH}")
        return FileResponse(_folder() / name, media_type=ASSETS[name], headers=HEADERS)


def _folder() -> Path:
    """Folder of the package's files; wheels are installed as plain files."""
    return Path(str(resources.files("fastapi_offline") / "static"))
