"""Amounts that may come from several providers, as queries say it.

Source: placement-api.md, "Split amounts".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from placement.api.queries import Parameters
from placement.domain.errors import BadRequest
from placement.domain.groups import UNSUFFIXED, CandidateQuery, RequestGroup, SplitRule

# The longer name counts where a key could be read as both.
_KEY = re.compile("(split_rule|split)([a-zA-Z0-9_-]{1,64})?")
_NO_CLASSES = frozenset[str]()


def taken_out(parameters: Parameters) -> tuple[Parameters, dict[str, RequestGroup]]:
    """The other parameters, and by suffix what these say: groups with nothing but `split` and `split_rule`.

    Raises BadRequest naming the parameter.
    """
    rest: Parameters = []
    values: dict[str, dict[str, str]] = {}
    for key, value in parameters:
        found = _KEY.fullmatch(key)
        if found is None:
            rest.append((key, value))
            continue
        name, suffix = found.group(1), found.group(2) or UNSUFFIXED
        if name in values.setdefault(suffix, {}):
            raise BadRequest(f"{key}: may be given only once", code="placement.query.duplicate_key")
        values[suffix][name] = value
    return rest, {suffix: _group(suffix, given) for suffix, given in values.items()}


def _group(suffix: str, given: Mapping[str, str]) -> RequestGroup:
    names = frozenset(name.strip() for name in given["split"].split(",")) if "split" in given else _NO_CLASSES
    if "split_rule" not in given:
        return RequestGroup(suffix, split=names)
    if not names:
        raise BadRequest(f"split_rule{suffix}: makes no sense without split{suffix}")
    return RequestGroup(suffix, split=names, split_rule=_rule(given["split_rule"], f"split_rule{suffix}"))


def _rule(text: str, where: str) -> SplitRule:
    if text not in list(SplitRule):
        raise BadRequest(f"{where}: must be one of {', '.join(SplitRule)}. Got: {text!r}")
    return SplitRule(text)


def with_splits(query: CandidateQuery, splits: Mapping[str, RequestGroup]) -> CandidateQuery:
    """The query with what `taken_out` found. Raises BadRequest naming the parameter."""
    unknown = sorted(splits.keys() - {group.suffix for group in query.groups})
    if unknown:
        raise BadRequest(f"split{unknown[0]}: there is no group {unknown[0] or 'without suffix'}")
    groups = (
        replace(group, split=splits[group.suffix].split, split_rule=splits[group.suffix].split_rule)
        if group.suffix in splits
        else group
        for group in query.groups
    )
    return checked(replace(query, groups=tuple(groups)))


def checked(query: CandidateQuery) -> CandidateQuery:
    """The query, if what it splits makes sense. Raises BadRequest naming the place."""
    for group in query.groups:
        where = query.place(group, "split")
        if group.split and group.suffix == UNSUFFIXED:
            raise BadRequest(
                f"{where}: the unsuffixed group cannot split amounts, as its classes may come from several "
                "trees; give the group a suffix"
            )
        strange = sorted(group.split - group.resources.keys())
        if strange:
            raise BadRequest(f"{where}: the group does not ask for {', '.join(strange)}")
    entirely = {group.suffix for group in query.groups if group.is_split}
    for at, suffixes in enumerate(query.same_subtree):
        if suffixes <= entirely:
            place = f"same_subtree[{at}]" if query.is_json else "same_subtree"
            raise BadRequest(
                f"{place}: needs a group that takes something whole from one provider, such as a group "
                f"without resources; below that provider {', '.join(sorted(suffixes))} can be split"
            )
    return query
