"""/ext/v1/orphans: what was left over."""

from __future__ import annotations

from flask import Blueprint, Response

from placement.allocations.orphan_schemas import OrphanPageSchema
from placement.allocations.orphans import OrphanKind, Orphans, read_cursor
from placement.common.microversions import NEWEST
from placement.engine.domain.errors import BadRequest, parameter
from placement.http import query_strings
from placement.http.answers import json_response
from placement.http.bodies import parameters
from placement.http.context import service
from placement.http.gate import route
from placement.http.operations import Parameter, names_of, shows
from placement.http.schemas import dump

blueprint = Blueprint("orphans", __name__)
RULE = "orphans:list"
"""The policy rule of the list and of its page."""
_FILTERS = (
    Parameter("kind", "One kind only.", {"type": "string", "enum": list(OrphanKind)}),
    query_strings.LIMIT,
    Parameter("after", "The `next` of the previous page."),
)


@route(blueprint, "/ext/v1/orphans", "GET", f"placement:{RULE}", **shows(OrphanPageSchema, _FILTERS))
def orphans() -> Response:
    """Return consumers and providers that may be left over, page by page; a page may be empty."""
    given = parameters()
    query_strings.refuse_unknown(given, names_of(_FILTERS, NEWEST))
    kind, after = kind_of(query_strings.single(given, "kind")), query_strings.single(given, "after")
    place = None if after is None else read_cursor(after, kind)
    page = service(Orphans).listed(kind, place, query_strings.page_size(given))
    return json_response(dump(OrphanPageSchema, page))


def kind_of(text: str | None) -> OrphanKind | None:
    """Return the kind of this name, None for all kinds. Raises BadRequest."""
    if text is None:
        return None
    if text not in list(OrphanKind):
        known = [str(kind) for kind in OrphanKind]
        raise BadRequest(
            f"{text!r} is not one of {', '.join(known)}",
            place=parameter("kind"),
            value=text,
            known=lambda: known,
        )
    return OrphanKind(text)
