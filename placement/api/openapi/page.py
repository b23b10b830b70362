"""The page that shows the document: what is in it, and the files of Swagger UI that it needs."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

DOCUMENT, PAGE_PATH = "/openapi.json", "/docs"
_START = "start.js"
_PACKAGE = "flask_swagger_ui"
_ASSETS = ("swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png")
# The page, its files and what it asks for come from this service; nothing is sent anywhere else.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
MISSING = (
    "This page needs the package flask-swagger-ui, of the extra `docs`, which is not installed here: "
    f"pip install '.[docs]'. The document itself is at {DOCUMENT}."
)
# Addresses are relative, for the service may be mounted under a prefix.
HTML = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Placement API</title>
<link rel="icon" type="image/png" href="docs/favicon-32x32.png">
<link rel="stylesheet" href="docs/swagger-ui.css">
<script src="docs/swagger-ui-bundle.js" defer></script>
<script src="docs/start.js" defer></script>
</head>
<body><div id="page"><a href="openapi.json">openapi.json</a></div></body>
</html>
"""
_SCRIPT = """window.ui = SwaggerUIBundle({
  url: "openapi.json" + window.location.search,
  dom_id: "#page",
  deepLinking: true,
  validatorUrl: null,
});
"""
# What needs no token, as the version document.
PATHS = frozenset({DOCUMENT, PAGE_PATH, *(f"{PAGE_PATH}/{name}" for name in (_START, *_ASSETS))})


def is_there() -> bool:
    """Whether the files of Swagger UI are installed."""
    return _folder() is not None


def asset(name: str) -> Path | str | None:
    """A file that the page needs, or its text; None for other names, or where they are not installed."""
    folder = _folder()
    if name == _START:
        return _SCRIPT
    return folder / name if name in _ASSETS and folder is not None else None


def _folder() -> Path | None:
    found = find_spec(_PACKAGE)
    return Path(found.origin).parent / "dist" if found is not None and found.origin is not None else None
