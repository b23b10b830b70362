"""The templates of the pages, and what stands around each of them.

A page must cost little beside what it shows, so the parts that many pages share are made once: macros, and
the navigation for each set of pages that a caller may see.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any
from urllib.parse import urlencode

import orjson
from flask import Blueprint, Flask, Response, current_app, request
from flask.templating import Environment
from jinja2 import ChoiceLoader, PackageLoader, PrefixLoader, select_autoescape
from markupsafe import Markup, escape

from placement.common.texts import spreadsheet_cell
from placement.engine.domain import request_scope
from placement.engine.domain.errors import BadRequest, Forbidden
from placement.http import context
from placement.http.context import use_cases
from placement.http.credentials import PAGES
from placement.http.gate import Handler, route
from placement.web import session
from placement.web.session import KEY_FIELD

blueprint = Blueprint("web", __name__)


def page(
    path: str, method: str = "GET", rule: str | None = None, **guard: Any
) -> Callable[[Handler], Handler]:
    """Register a handler for a path below /ui, for callers that pass the policy rule.

    Without a rule, callers that may list clusters, or their own ones, may ask, and the handler requires more.
    """
    guard = {"own_only": rule is None, **guard}

    def register(handler: Handler) -> Handler:
        route(blueprint, f"{PAGES}{path}", method, f"placement:{rule or 'clusters:list'}", **guard)(handler)
        return handler

    return register


# What the caller may see and do.


def may(rule: str, cluster: str | None = None, *, own_only: bool = False) -> bool:
    """Return whether the caller passes a policy rule, of a cluster if one is given."""
    try:
        _authorize(rule, cluster, own_only=own_only)
    except Forbidden:
        return False
    return True


def require(rule: str, cluster: str | None = None) -> None:
    """Let the page see what a policy rule is about: one cluster, or all there is.

    Raises Forbidden unless the caller passes it.
    """
    request_scope.show_only(_authorize(rule, cluster))


def _authorize(rule: str, cluster: str | None, *, own_only: bool = False) -> request_scope.Clusters:
    target = {} if cluster is None else {"cluster": cluster}
    sees: request_scope.Clusters = current_app.extensions["placement_policy"].authorize(
        f"placement:{rule}", target, own_only=own_only
    )
    return sees


def caller_clusters() -> frozenset[str] | None:
    """Return the clusters that the caller's token is bound to, or None if it is bound to none."""
    return context.current().caller.clusters


def clusters() -> list[Any]:
    """Return the clusters that the caller may see."""
    own = caller_clusters()
    return [each for each in use_cases().clusters.listed() if own is None or each.name in own]


_BETWEEN = "\0"
_OF_DICTS = frozenset(dir(dict))
# Group, key, path, name, policy rule; whether the caller's own clusters are enough (_OWN), or the page is of
# one of them, which its address then names (_ONE).
_OWN, _ONE, _ALL = "own", "one", "all"
_FLEET, _ASK, _HELD, _RECORDS = "Fleet", "Ask", "In use", "Records"
_PAGES = (
    (_FLEET, "o", "/", "Overview", "clusters:list", _OWN),
    (_FLEET, "m", "/map", "Map", "resource_providers:list", _ONE),
    (_ASK, "w", "/why", "Why not", "clusters:list", _OWN),
    (_ASK, "f", "/room", "How much fits", "capacity:show", _ONE),
    (_ASK, "v", "/moves", "Moves", "plans:make", _ONE),
    (_HELD, "c", "/consumers", "Consumers", "allocations:list_all", _ONE),
    (_HELD, "p", "/pods", "Pods", "clusters:list", _OWN),
    (_RECORDS, "h", "/changes", "Changes", "audit:list", _ALL),
    (_RECORDS, "r", "/refusals", "Refusals", "clusters:list", _OWN),
)


# Pages without a place in the navigation, and the page that they belong to.
_PART_OF = {"/hosts": "/map", "/nodes": "/map", "/figures": "/"}


class _Environment(Environment):
    """An environment that looks up members of documents as keys, instead of trying attributes first."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        if type(obj) is dict and attribute not in _OF_DICTS:
            try:
                return obj[attribute]
            except KeyError:
                return self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)


def add_templates(application: Flask, filters: dict[str, Any], functions: dict[str, Any]) -> None:
    """Let the application render our templates."""
    application.jinja_environment = _Environment
    application.jinja_loader = ChoiceLoader([PrefixLoader({"web": PackageLoader("placement.web")})])
    environment = application.jinja_env
    environment.autoescape = select_autoescape(default=True, default_for_string=True)
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.filters |= filters
    environment.globals |= {**functions, "navigation": navigation, "options": options, "may": may}


def rendered(template: str, **values: Any) -> str:
    """Return a page as text."""
    found = current_app.jinja_env.get_template(f"web/{template}")
    needs_sign_in = session.needs_sign_in()
    asked = request.query_string.decode("latin-1")
    return found.render(
        root=escape(f"{request.script_root}{PAGES}"),
        here=f"{request.script_root}{request.path}?{asked}{'&' if asked else ''}",
        needs_sign_in=needs_sign_in,
        signed_in=needs_sign_in and session.is_signed_in(),
        caller=context.current().caller,
        **values,
    )


def escaped(rows: Iterable[Sequence[str]]) -> list[list[str]]:
    """Return the cells of a table as HTML, for templates that write them as they are.

    All are escaped in one go: one by one that takes as long as reading them from the database.
    """
    listed = [list(row) for row in rows]
    cells = [cell for row in listed for cell in row]
    found = str(escape(_BETWEEN.join(cells))).split(_BETWEEN) if cells else []
    if len(found) != len(cells):
        # Some cell contains the separator.
        found = [str(escape(cell)) for cell in cells]
    rest = iter(found)
    return [list(islice(rest, len(row))) for row in listed]


_UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CALLED = Markup('<span title="{}">{}</span>')


def uuids_in(text: str) -> set[str]:
    """Return the uuids in a text."""
    return set(_UUID.findall(text))


def named(text: str, called: Mapping[str, str]) -> Markup:
    """Return a text with names in place of the uuids that have one, each with its uuid as title."""

    def shown_as(uuid: re.Match[str]) -> str:
        return _CALLED.format(uuid[0], called[uuid[0]]) if uuid[0] in called else uuid[0]

    return Markup(_UUID.sub(shown_as, escape(text)))


def options(names: Sequence[str], chosen: str | None) -> Markup:
    """Return the options of a list of choices."""
    return _options(tuple(names), chosen)


@lru_cache(maxsize=500)
def _options(names: tuple[str, ...], chosen: str | None) -> Markup:
    plain, selected = Markup("<option>{}</option>"), Markup("<option selected>{}</option>")
    return Markup("").join((selected if name == chosen else plain).format(name) for name in names)


def navigation() -> Markup:
    """Return the list of the pages that the caller may see."""
    own = min(context.current().caller.clusters or (), default=None)
    rules = {
        (rule, of): may(rule, own if of == _ONE else None, own_only=of == _OWN) for *_, rule, of in _PAGES
    }
    allowed = tuple(rules[rule, of] for *_, rule, of in _PAGES)
    section = "/" + request.path.removeprefix(PAGES).lstrip("/").partition("/")[0]
    shown = _PART_OF.get(section, section)
    return _navigation(current_app.jinja_env, f"{request.script_root}{PAGES}", shown, allowed, own)


@lru_cache(maxsize=500)
def _navigation(
    environment: Environment, root: str, shown: str, allowed: tuple[bool, ...], own: str | None
) -> Markup:
    groups: dict[str, list[tuple[str, str, str, str | None, bool]]] = {}
    for (group, key, path, name, _, of), seen in zip(_PAGES, allowed, strict=True):
        if seen:
            groups.setdefault(group, []).append((key, path, name, own if of == _ONE else None, path == shown))
    return Markup(environment.get_template("web/navigation.html").render(root=root, groups=groups.items()))


# What a page shows, in the form that is asked for: HTML, JSON or CSV.


HTML, JSON, CSV = "html", "json", "csv"

Table = tuple[Sequence[str], Iterable[Sequence[Any]]]
"""The names of the columns, and the rows."""


def asked() -> dict[str, str]:
    """Return what a page is asked for: the fields of a form without its key, or the parameters of a link."""
    given = (request.form if request.method == "POST" else request.args).to_dict()
    given.pop(KEY_FIELD, None)
    return given


def wanted() -> str:
    """Return the format that is asked for: HTML, JSON or CSV. Raises BadRequest."""
    found = asked().get("format", HTML)
    if found not in (HTML, JSON, CSV):
        raise BadRequest(f"format: must be {HTML}, {JSON} or {CSV}, not {found!r}")
    return found


def shown(
    template: str, document: Any, table: Table | Callable[[], Table], status: int = 200, **beside: Any
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
        raise BadRequest(f"{name}: must be 1 to {most}, not {text!r}")
    return int(text)


def marker() -> int | None:
    """Return where the page before ended, or None for the first page. Raises BadRequest."""
    text = request.args.get("marker")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise BadRequest("marker: must be the one of the page before")
    return int(text)


def choices(*names: str) -> dict[str, str | None]:
    """Return the parameters of these names, None where one is missing or empty."""
    return {name: request.args.get(name) or None for name in names}


def pretty(document: Any) -> str:
    """Return a document for people, as JSON on many lines."""
    return orjson.dumps(document, default=str, option=orjson.OPT_INDENT_2).decode()


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
