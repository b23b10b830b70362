"""The query string of our own search: the newest grammar, split, order_by, cluster, prefer and explain."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from placement.api import candidate_query, split_parameters
from placement.api.candidate_parameters import OWN
from placement.api.context import use_cases
from placement.api.described import names_of
from placement.api.microversions import NEWEST
from placement.api.queries import LONGEST_KEPT, Parameters, every, single
from placement.domain.errors import BadRequest
from placement.domain.groups import CandidateQuery
from placement.domain.identifiers import normalize_uuid
from placement.services.placement.search_options import SearchOptions, SoftCondition

_OWN = names_of(OWN, NEWEST)
_HEAVIEST = 100
_MOST_PREFERENCES = 32
_TRAIT = re.compile("[A-Z0-9_]{1,255}")
_FORM = "expected trait or aggregate, with ! in front to avoid it and :weight behind"


def parse(parameters: Parameters) -> tuple[CandidateQuery, SearchOptions]:
    """The query and the options. Raises BadRequest naming the parameter."""
    is_kept = sum(map(len, chain(*parameters))) <= LONGEST_KEPT
    asked = (_asked if is_kept else _asked.__wrapped__)(tuple(parameters))
    options = use_cases().candidates.options(
        asked.order_by, asked.cluster, asked.preferences, explain=asked.explain
    )
    return asked.query, options


class _Asked(NamedTuple):
    """What the parameters say, whatever there is of it."""

    query: CandidateQuery
    order_by: str | None
    cluster: str | None
    preferences: tuple[SoftCondition, ...]
    explain: bool


# Callers send the same ones again and again.
@lru_cache(maxsize=256)
def _asked(given: tuple[tuple[str, str], ...]) -> _Asked:
    parameters = list(given)
    rest, splits = split_parameters.taken_out([pair for pair in parameters if pair[0] not in _OWN])
    query = candidate_query.parse(rest, NEWEST)
    return _Asked(
        split_parameters.with_splits(query, splits) if splits else query,
        single(parameters, "order_by"),
        single(parameters, "cluster"),
        parse_preferences(every(parameters, "prefer")),
        _flag(single(parameters, "explain")),
    )


def _flag(value: str | None) -> bool:
    if value not in (None, "0", "1"):
        raise BadRequest(f"explain: must be 0 or 1, not {value!r}")
    return value == "1"


def parse_preferences(values: Sequence[str], *, is_json: bool = False) -> tuple[SoftCondition, ...]:
    """All `prefer` values. Raises BadRequest naming the parameter, or the place in a JSON body."""
    places = (f"prefer[{at}]" if is_json else "prefer" for at in range(len(values)))
    found = tuple(soft for place, value in zip(places, values, strict=True) for soft in _parsed(value, place))
    if len(found) > _MOST_PREFERENCES:
        raise BadRequest(f"prefer: at most {_MOST_PREFERENCES} preferences are understood")
    return found


def _parsed(value: str, place: str) -> Iterator[SoftCondition]:
    for piece in (piece.strip() for piece in value.split(",")):
        name, colon, weight_text = piece.partition(":")
        absent = name.startswith("!")
        name = name.removeprefix("!").strip()
        weight = _weight(weight_text, piece, place) if colon else 1
        aggregate = normalize_uuid(name)
        if aggregate is not None:
            yield SoftCondition(weight, aggregate=aggregate, absent=absent)
        elif _TRAIT.fullmatch(name):
            yield SoftCondition(weight, trait=name, absent=absent)
        else:
            raise BadRequest(f"{place}: {_FORM}. Got: {piece!r}")


def _weight(text: str, piece: str, place: str) -> int:
    if not re.fullmatch("[0-9]{1,3}", text) or not 1 <= int(text) <= _HEAVIEST:
        raise BadRequest(f"{place}: the weight must be 1 to {_HEAVIEST}. Got: {piece!r}")
    return int(text)
