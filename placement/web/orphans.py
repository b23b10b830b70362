"""The page of what may be left over: each kind with what it means, and links to consumers and hosts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from flask import Response

from placement.allocations.orphan_routes import RULE, kind_of
from placement.allocations.orphan_schemas import OrphanPageSchema
from placement.allocations.orphans import OrphanKind, OrphanPage, Orphans, read_cursor
from placement.common.texts import shown_span
from placement.engine.domain.errors import BadRequest, parameter
from placement.http.context import service
from placement.http.schemas import dump
from placement.web.answers import PageTable, choices, refuse_others, same_page, shown
from placement.web.callers import may
from placement.web.templating import page

_PAGE, _OF_EACH = 50, 20
_CONSUMERS, _HOSTS, _PROVIDERS, _NAMES = "consumers", "hosts", "providers", "names"
_COLUMNS = ("kind", "uuid", "name", "hosts", "age_seconds", "project_id", "suspicious")
# Of each kind what it lists, its heading, and its meaning.
_KINDS = {
    OrphanKind.MIGRATION: (
        _CONSUMERS,
        "Migration records",
        "While a server moves, such a record holds its place on the host that it leaves. One older than an "
        "hour was probably forgotten, or a resize waits for its confirmation.",
    ),
    OrphanKind.SEVERAL_HOSTS: (
        _CONSUMERS,
        "Consumers on several hosts",
        "A server runs on one host, so what it holds elsewhere is lost to others.",
    ),
    OrphanKind.NO_AGGREGATE: (
        _HOSTS,
        "Hosts in no aggregate",
        "A request for an availability zone passes them by.",
    ),
    OrphanKind.NO_INVENTORY: (
        _PROVIDERS,
        "Providers that offer nothing",
        "They have no inventory, and nothing below them has; a host that left the cloud often stays so.",
    ),
    OrphanKind.SAME_NAME: (
        _NAMES,
        "Names that MySQL takes for one",
        "They differ in case, accents or blanks at the end; one host may be here twice, and an export fails.",
    ),
}


class OrphanSection(NamedTuple):
    """A kind on the page: its rows, where all of them are, and where the following page begins."""

    kind: OrphanKind
    lists: str
    title: str
    meaning: str
    orphans: list[Mapping[str, Any]]
    following: str | None


@page("/orphans", rule=RULE)
def _orphans() -> Response:
    refuse_others("kind", "after")
    given = choices("kind", "after")
    only = kind_of(given["kind"])
    if only is None and given["after"] is not None:
        raise BadRequest("needs a kind, as each kind has its own pages", place=parameter("after"))
    after = None if given["after"] is None else read_cursor(given["after"], only)
    kinds = list(OrphanKind) if only is None else [only]
    count = _OF_EACH if only is None else _PAGE
    pages = {kind: service(Orphans).listed(kind, after if only else None, count) for kind in kinds}
    sections = [_section(kind, found) for kind, found in pages.items()]
    listed = [each for section in sections for each in section.orphans]
    document = {"orphans": listed, "next": {each.kind: each.following for each in sections}}
    return shown(
        "orphans.html",
        document,
        lambda: _table(listed),
        sections=sections,
        only=only,
        is_first=after is None,
        span=shown_span,
        sees_consumers=may("allocations:list"),
        more=lambda section: same_page(kind=section.kind, after=section.following),
    )


def _section(kind: OrphanKind, orphan_page: OrphanPage) -> OrphanSection:
    body = dump(OrphanPageSchema, orphan_page)
    return OrphanSection(kind, *_KINDS[kind], body["orphans"], body["next"])


def _table(orphans: list[Mapping[str, Any]]) -> PageTable:
    rows = []
    for each in orphans:
        consumer = each["consumer"] or {}
        names = ", ".join(host["name"] for host in each["hosts"])
        alike = ", ".join(other["name"] for other in each["alike"])
        rows.append(
            (
                *(each["kind"], each["uuid"], each["name"] or alike or None, names),
                *(consumer.get("age_seconds"), consumer.get("project_id"), each["suspicious"]),
            )
        )
    return _COLUMNS, rows
