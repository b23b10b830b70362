"""The body of allocation candidates.

Candidates with the same layout differ only in uuids, so one template per layout writes them all; the
summaries of a tree are kept as long as nothing in the tree changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import orjson

from placement.api.microversions import Feature, Microversion
from placement.candidates.answer import Answer, Layout, ProviderSummary
from placement.candidates.texts import Texts, lines
from placement.candidates.tree_texts import TreeTexts
from placement.services.candidates import Search

_CACHE_BYTES = 32 * 2**20
# Stands for a uuid in a template; no name in an answer has such a character.
_UUID = b"\0"


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
        remarks: Texts | None = None,
        appendix: bytes = b"",
    ) -> bytes:
        """The JSON body. To be called while the forest stands still.

        `remarks`: members to add to each element, `appendix`: to the body; as JSON without braces.
        """
        if version.offers(Feature.NESTED_CANDIDATES):
            summaries = self._whole_trees(search)
        else:
            summaries = list(_contributors(search, version))
        return b"".join(
            (
                b'{"allocation_requests":[',
                _elements(search, version, remarks),
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


def _elements(search: Search, version: Microversion, remarks: Texts | None) -> bytes | memoryview:
    """All candidates, separated by commas."""
    written = [b""] * len(search.answer)
    for layout in search.answer.layouts():
        texts = _texts(search, layout, version, remarks)
        if layout.places is None:
            # Not copied once more, for there may be megabytes.
            return texts.ravel().data[:-1]
        for place, text in zip(layout.places.tolist(), lines(texts), strict=True):
            written[place] = text
    return b"".join(written)[:-1]


def _texts(search: Search, layout: Layout, version: Microversion, remarks: Texts | None) -> Texts:
    """The candidates of one layout, with a comma behind each."""
    pieces, providers = _template(search, layout, version)
    if remarks is None:
        pieces[-1] += b","
        return layout.texts(pieces, providers, ())
    pieces[-1] = pieces[-1].removesuffix(b"}") + b","
    return layout.texts([*pieces, b"},"], providers, (remarks,))


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
    # By id, so standard ones come first and custom ones in the order of their creation.
    return [search.names.traits[trait] for trait in sorted(member.trait_ids)]
