"""What a page is asked for, and what it answers: HTML, JSON or CSV, or the way to another page."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import urlencode

import orjson
from flask import Response, request

from placement.common.texts import spreadsheet_cell
from placement.engine.domain.errors import BadRequest, parameter
from placement.http.credentials import PAGES
from placement.http.query_strings import refuse_unknown
from placement.web.session import KEY_FIELD
from placement.web.templating import rendered

HTML, JSON, CSV = "html", "json", "csv"

PageTable = tuple[Sequence[str], Iterable[Sequence[Any]]]
"""The names of the columns, and the rows."""


def asked() -> dict[str, str]:
    """Return what a page is asked for: the fields of a form without its key, or the parameters of a link."""
    given = (request.form if request.method == "POST" else request.args).to_dict()
    given.pop(KEY_FIELD, None)
    return given


def refuse_others(*known: str) -> None:
    """Raise BadRequest for parameters or fields that a page does not know, as it would ignore them."""
    given = request.form if request.method == "POST" else request.args
    pairs = [pair for pair in given.items(multi=True) if pair[0] != KEY_FIELD]
    refuse_unknown(pairs, (*known, "format"))


def wanted() -> str:
    """Return the format that is asked for: HTML, JSON or CSV. Raises BadRequest."""
    found = asked().get("format", HTML)
    if found not in (HTML, JSON, CSV):
        raise BadRequest(f"must be {HTML}, {JSON} or {CSV}, not {found!r}", place=parameter("format"))
    return found


def shown(
    template: str, document: Any, table: PageTable | Callable[[], PageTable], status: int = 200, **beside: Any
) -> Response:
    """Return `document` as JSON, `table` as CSV, or the template with `document` and `beside`.

    A `document` or `table` that only its own format takes may be a function.
    """
    form = wanted()
    if form == JSON:
        found = document() if callable(document) else document
        text = orjson.dumps(found, default=str, option=orjson.OPT_NON_STR_KEYS)
        return Response(text, status, content_type="application/json")
    if form == CSV:
        names, rows = table() if callable(table) else table
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(map(spreadsheet_cell, row) for row in rows)
        return Response(file.getvalue().encode(), status, content_type="text/csv; charset=utf-8")
    # If a question came in a form, the links to JSON and CSV are forms, too: no address holds it.
    resent = asked() if request.method == "POST" else None
    return html(template, status, document=document, has_data=True, resent=resent, **beside)


def html(template: str, status: int = 200, **values: Any) -> Response:
    """Return a page as a response."""
    return Response(rendered(template, **values), status, content_type="text/html; charset=utf-8")


def whole(name: str, text: str, most: int) -> int:
    """Return a whole number from 1 to `most`. Raises BadRequest naming the field."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and 1 <= int(text) <= most):
        raise BadRequest(f"must be 1 to {most}, not {text!r}", place=parameter(name))
    return int(text)


def marker() -> int | None:
    """Return where the page before ended, or None for the first page. Raises BadRequest."""
    text = request.args.get("marker")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise BadRequest("must be the one of the page before", place=parameter("marker"))
    return int(text)


def choices(*names: str) -> dict[str, str | None]:
    """Return the parameters of these names, None where one is missing or empty."""
    return {name: request.args.get(name) or None for name in names}


def address(path: str, /, **query: Any) -> str:
    """Return the address of a page below /ui, with the parameters that are not None."""
    given = {name: value for name, value in query.items() if value is not None}
    return f"{request.script_root}{PAGES}{path}" + (f"?{urlencode(given)}" if given else "")


def same_page(**changes: Any) -> str:
    """Return the address of this very page with some parameters changed, or left out if None."""
    given = {**request.args.to_dict(), **changes}
    kept = {name: value for name, value in given.items() if value is not None}
    return f"{request.script_root}{request.path}" + (f"?{urlencode(kept)}" if kept else "")


def to(path: str) -> Response:
    """Send the browser on to a page, which it asks for with GET."""
    return Response(status=303, headers={"Location": path})
