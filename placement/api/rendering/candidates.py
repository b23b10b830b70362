"""The body of allocation candidates.

Candidates with the same layout differ only in uuids, so one template per layout writes them all; the
summaries of a tree are kept as long as nothing in the tree changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson

from placement.api.microversions import Feature, Microversion
from placement.candidates.answer import Answer, Layout, ProviderSummary
from placement.candidates.tree_texts import TreeTexts
from placement.services.candidates import Search

_CACHE_BYTES = 32 * 2**20
# Stands for a uuid in a template; no name in an answer has such a character.
_UUID = b"\0"


@dataclass(frozen=True, slots=True)
class Remarks:
    """Members to add to each element, as JSON without braces: a template with %b for the columns' texts.

    A column has one text per candidate.
    """

    template: bytes
    columns: list[list[bytes]]

    def columns_at(self, places: Sequence[int]) -> list[list[bytes]]:
        """The columns of some candidates."""
        return [[column[place] for place in places] for column in self.columns]

    @property
    def texts(self) -> list[bytes]:
        """The members of each element."""
        return [self.template % texts for texts in zip(*self.columns, strict=True)]


class CandidatesRenderer:
    """Writes answers; keeps the summaries of trees between requests."""

    def __init__(self) -> None:
        self._trees = TreeTexts(_CACHE_BYTES)
        self._names: object = None

    def body(
        self,
        search: Search,
        version: Microversion,
        *,
        remarks: Remarks | None = None,
        appendix: bytes = b"",
    ) -> bytes:
        """The JSON body. To be called while the forest stands still.

        `appendix`: members to add to the body, as JSON without braces.
        """
        written = _remarked(search, version, remarks) if remarks else _together(search, version)
        if version.offers(Feature.NESTED_CANDIDATES):
            summaries = self._whole_trees(search)
        else:
            summaries = list(_contributors(search, version))
        return b"".join(
            (
                b'{"allocation_requests":[',
                written,
                b'],"provider_summaries":{',
                b",".join(summaries),
                b"}",
                b"," + appendix if appendix else b"",
                b"}",
            )
        )

    def _whole_trees(self, search: Search) -> list[bytes]:
        if self._names is not search.names:
            self._trees.forget()
            self._names = search.names
        if not len(search.answer):
            return []
        return search.answer.tree_texts(
            self._trees, lambda members: b",".join(_summary(member, search) for member in members)
        )


def _together(search: Search, version: Microversion) -> bytes | memoryview:
    """All candidates, separated by commas."""
    layouts = list(search.answer.layouts())
    if len(layouts) != 1:
        return b",".join(_each(search, version, None))
    pieces, providers = _template(search, layouts[0], version)
    pieces[-1] += b","
    return layouts[0].records(pieces, providers)[:-1]


def _remarked(search: Search, version: Microversion, remarks: Remarks) -> bytes:
    """All candidates with a remark each, separated by commas."""
    return b",".join(_each(search, version, remarks))


def _each(search: Search, version: Microversion, remarks: Remarks | None) -> list[bytes]:
    """The candidates one by one."""
    answer = search.answer
    written: list[bytes] = [b""] * len(answer)
    layouts = list(answer.layouts())
    for layout in layouts:
        pieces, providers = _template(search, layout, version)
        template = b"%b".join(pieces)
        columns = layout.uuids(providers)
        if remarks is not None:
            template = b"%b,%b}" % (template[:-1], remarks.template)
            columns += remarks.columns if len(layouts) == 1 else remarks.columns_at(layout.places)
        texts = [template % values for values in zip(*columns, strict=True)]
        if len(layouts) == 1:
            return texts
        for place, text in zip(layout.places, texts, strict=True):
            written[place] = text
    return written


def _template(search: Search, layout: Layout, version: Microversion) -> tuple[list[bytes], list[int]]:
    """The text of a candidate in pieces between uuids, and the distinct providers these are of, in order."""
    amounts: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    groups: dict[str, list[int]] = {}
    for slot, provider in zip(search.answer.slots, layout.provider_of, strict=True):
        for class_id, amount in slot.resources:
            amounts[provider][search.names.classes[class_id]] += amount
        members = groups.setdefault(slot.suffix, [])
        if provider not in members:
            members.append(provider)
    providers = list(amounts)
    resources = [orjson.dumps(dict(amounts[provider])) for provider in providers]
    if version.offers(Feature.ALLOCATIONS_BY_PROVIDER):
        parts = [b'"%b":{"resources":%b}' % (_UUID, text) for text in resources]
        body = b'"allocations":{%b}' % b",".join(parts)
    else:
        parts = [b'{"resource_provider":{"uuid":"%b"},"resources":%b}' % (_UUID, text) for text in resources]
        body = b'"allocations":[%b]' % b",".join(parts)
    if version.offers(Feature.MAPPINGS):
        mappings = []
        for suffix, members in groups.items():
            named = b",".join([b'"%b"' % _UUID] * len(members))
            mappings.append(b"%b:[%b]" % (orjson.dumps(suffix), named))
            providers.extend(members)
        body += b',"mappings":{%b}' % b",".join(mappings)
    return (b"{%b}" % body).split(_UUID), providers


def _contributors(search: Search, version: Microversion) -> Iterable[bytes]:
    """Summaries before 1.29: only providers in use, in the fields of the version."""
    answer: Answer = search.answer
    if not len(answer):
        return
    asked = {class_id for slot in answer.slots for class_id, _ in slot.resources}
    for member in answer.contributor_summaries():
        offered = [
            resource
            for resource in member.resources
            if version.offers(Feature.ALL_CLASSES_IN_SUMMARIES) or resource[0] in asked
        ]
        summary: dict[str, object] = {"resources": _resources(offered, search)}
        if version.offers(Feature.CANDIDATES_TRAITS):
            summary["traits"] = _traits(member, search)
        yield orjson.dumps(member.uuid) + b":" + orjson.dumps(summary)


def _summary(member: ProviderSummary, search: Search) -> bytes:
    summary = {
        "resources": _resources(member.resources, search),
        "traits": _traits(member, search),
        "parent_provider_uuid": member.parent_uuid,
        "root_provider_uuid": member.root_uuid,
    }
    return b'"%b":%b' % (member.uuid.encode(), orjson.dumps(summary))


def _resources(offered: Iterable[tuple[int, int, int]], search: Search) -> dict[str, dict[str, int]]:
    classes = search.names.classes
    return {classes[id_]: {"capacity": capacity, "used": used} for id_, capacity, used in offered}


def _traits(member: ProviderSummary, search: Search) -> list[str]:
    return sorted(search.names.traits[trait] for trait in member.trait_ids)
