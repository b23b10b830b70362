"""The templates of the pages, and what stands around each of them.

A page must cost little beside what it shows, so the parts that many pages share are made once: macros, and
the navigation for each set of pages that somebody may see.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from flask import Flask, current_app, request
from flask.templating import Environment
from jinja2 import ChoiceLoader, PackageLoader, PrefixLoader, select_autoescape
from markupsafe import Markup, escape

from placement.api import context
from placement.api.route_guard import PAGES
from placement.web import session
from placement.web.permissions import may

_BETWEEN = "\0"
_OF_DICTS = frozenset(dir(dict))
# Key, path, name, policy rule; whether the caller's own clusters are enough, or the page is of one of them,
# which its address then names.
_OWN, _ONE, _ALL = "own", "one", "all"
_PAGES = (
    ("o", "/", "Overview", "clusters:list", _OWN),
    ("m", "/map", "Map", "resource_providers:list", _ONE),
    ("w", "/why", "Why not", "clusters:list", _OWN),
    ("f", "/room", "How much fits", "capacity:show", _ONE),
    ("v", "/moves", "Moves", "plans:make", _ONE),
    ("c", "/consumers", "Consumers", "allocations:list_all", _ONE),
    ("p", "/pods", "Pods", "clusters:list", _OWN),
    ("h", "/changes", "Changes", "audit:list", _ALL),
    ("r", "/refusals", "Refusals", "clusters:list", _OWN),
)


class _Environment(Environment):
    """Looks the members of documents up where they are, in place of trying attributes first."""

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
    """A page as text."""
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
    """The cells of a table as HTML, for templates that write them as they are.

    All are escaped in one go: one by one that takes as long as reading them from the database.
    """
    listed = [list(row) for row in rows]
    cells = [cell for row in listed for cell in row]
    found = str(escape(_BETWEEN.join(cells))).split(_BETWEEN) if cells else []
    if len(found) != len(cells):
        # Some cell contains what we put between them.
        found = [str(escape(cell)) for cell in cells]
    rest = iter(found)
    return [list(islice(rest, len(row))) for row in listed]


def options(names: Sequence[str], chosen: str | None) -> Markup:
    """What a list of choices offers."""
    return _options(tuple(names), chosen)


@lru_cache(maxsize=500)
def _options(names: tuple[str, ...], chosen: str | None) -> Markup:
    plain, selected = Markup("<option>{}</option>"), Markup("<option selected>{}</option>")
    return Markup("").join((selected if name == chosen else plain).format(name) for name in names)


def navigation() -> Markup:
    """The list of the pages that the caller may see."""
    own = min(context.current().caller.clusters or (), default=None)
    rules = {(rule, of): _may_see(rule, of, own) for _, _, _, rule, of in _PAGES}
    allowed = tuple(rules[rule, of] for _, _, _, rule, of in _PAGES)
    shown = request.path.removeprefix(PAGES).rstrip("/") or "/"
    environment = current_app.jinja_env
    return _navigation(environment, f"{request.script_root}{PAGES}", shown, allowed, own)


def _may_see(rule: str, of: str, own: str | None) -> bool:
    return may(rule, own if of == _ONE else None, own_only=of == _OWN)


@lru_cache(maxsize=500)
def _navigation(
    environment: Environment, root: str, shown: str, allowed: tuple[bool, ...], own: str | None
) -> Markup:
    pages = [
        (key, path, name, own if of == _ONE else None, path == shown)
        for (key, path, name, _, of), seen in zip(_PAGES, allowed, strict=True)
        if seen
    ]
    return Markup(environment.get_template("web/navigation.html").render(root=root, pages=pages))
