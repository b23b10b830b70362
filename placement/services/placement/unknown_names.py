"""Names in the JSON body of a search that nobody has created, refused by their place."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from placement.domain.errors import BadRequest
from placement.domain.groups import CandidateQuery
from placement.storage.statements.names import Names


class _Mention(NamedTuple):
    place: str
    what: str
    names: Collection[str]
    known: Collection[str]


def refuse_unknown_names(known: Names, query: CandidateQuery) -> None:
    """Raises BadRequest naming the first place in the body with classes or traits that do not exist.

    Source: placement-api.md, "Candidates by JSON".
    """
    for mention in _mentions(known, query):
        unknown = sorted(name for name in mention.names if name not in mention.known)
        if unknown:
            raise BadRequest(f"{mention.place}: No such {mention.what} {', '.join(unknown)}.")


def _mentions(known: Names, query: CandidateQuery) -> Iterator[_Mention]:
    classes, traits = known.class_ids, known.trait_ids
    for group in query.groups:
        required = frozenset[str]().union(*group.required)
        yield _Mention(query.place(group, "resources"), "resource class", group.resources, classes)
        yield _Mention(query.place(group, "required"), "trait", required, traits)
        yield _Mention(query.place(group, "forbidden"), "trait", group.forbidden, traits)
    yield _Mention("root_required", "trait", query.root_required, traits)
    yield _Mention("root_forbidden", "trait", query.root_forbidden, traits)
