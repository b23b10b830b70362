"""The templates of the pages, and what stands around each of them.

A page must cost little beside what it shows, so the parts that many pages share are made once: macros, and
the navigation for each set of pages that a caller may see.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

import orjson
from flask import Blueprint, Flask, current_app, request
from flask.templating import Environment
from jinja2 import ChoiceLoader, PackageLoader, PrefixLoader, select_autoescape
from markupsafe import Markup, escape

from placement.common.titles import short_id
from placement.http import context
from placement.http.credentials import PAGES
from placement.http.gate import Handler, route
from placement.web import session
from placement.web.callers import may

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
    (_HELD, "l", "/orphans", "Orphans", "orphans:list", _ALL),
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


def short(text: str) -> str:
    """Return an id in few digits with the whole as title, and any other text as it is."""
    digits = short_id(text)
    return text if digits == text else _CALLED.format(text, digits)


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


def pretty(document: Any) -> str:
    """Return a document for people, as JSON on many lines."""
    return orjson.dumps(document, default=str, option=orjson.OPT_INDENT_2).decode()
