"""What a page shows, in the form that is asked for: HTML, JSON or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import urlencode

import orjson
from flask import Response, request

from placement.api.route_guard import PAGES
from placement.domain.errors import BadRequest
from placement.web.session import KEY_FIELD
from placement.web.templating import rendered

HTML, JSON, CSV = "html", "json", "csv"
# Spreadsheets take texts that begin so for formulas.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")

Table = tuple[Sequence[str], Iterable[Sequence[Any]]]
"""The names of the columns, and the rows."""


def asked() -> dict[str, str]:
    """Return what a page is asked for: the fields of a form without its key, or the parameters of a link."""
    given = (request.form if request.method == "POST" else request.args).to_dict()
    given.pop(KEY_FIELD, None)
    return given


def wanted() -> str:
    """The form that is asked for. Raises BadRequest."""
    found = asked().get("format", HTML)
    if found not in (HTML, JSON, CSV):
        raise BadRequest(f"format: must be {HTML}, {JSON} or {CSV}, not {found!r}")
    return found


def shown(
    template: str, document: Any, table: Table | Callable[[], Table], status: int = 200, **beside: Any
) -> Response:
    """The answer of a page: `document` as JSON, `table` as CSV, or the template with `document` and `beside`.

    What only JSON or only CSV takes comes as a function.
    """
    form = wanted()
    if form == JSON:
        found = document() if callable(document) else document
        text = orjson.dumps(found, default=str, option=orjson.OPT_NON_STR_KEYS)
        return _plain(text, "application/json", status)
    if form == CSV:
        return _plain(_csv(table() if callable(table) else table), "text/csv; charset=utf-8", status)
    # The links to JSON and CSV of a page whose question is in no address are forms, too.
    resent = asked() if request.method == "POST" else None
    return html(template, status, document=document, has_data=True, resent=resent, **beside)


def html(template: str, status: int = 200, **values: Any) -> Response:
    """A page."""
    return Response(rendered(template, **values), status, content_type="text/html; charset=utf-8")


def _plain(text: bytes, content_type: str, status: int) -> Response:
    response = Response(text, status, content_type=content_type)
    response.headers["Cache-Control"] = "no-store"
    return response


def _csv(table: Table) -> bytes:
    names, rows = table
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return file.getvalue().encode()


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def pretty(document: Any) -> str:
    """A document for people, as JSON on many lines."""
    return orjson.dumps(document, default=str, option=orjson.OPT_INDENT_2).decode()


def address(path: str, **query: Any) -> str:
    """The address of a page below /ui, with the parameters that are not None."""
    given = {name: value for name, value in query.items() if value is not None}
    return f"{request.script_root}{PAGES}{path}" + (f"?{urlencode(given)}" if given else "")


def same_page(**changes: Any) -> str:
    """The address of this very page with some parameters changed, or left out if None."""
    given = {**request.args.to_dict(), **changes}
    kept = {name: value for name, value in given.items() if value is not None}
    return f"{request.script_root}{request.path}" + (f"?{urlencode(kept)}" if kept else "")


def to(path: str) -> Response:
    """Send the browser on to a page, which it asks for with GET."""
    return Response(status=303, headers={"Location": path})
