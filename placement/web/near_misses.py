"""Near misses by host: what the providers of a host lack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from placement.engine.domain.explanation import Reason
from placement.providers.statements.providers import NamedPlace
from placement.web import units
from placement.web.answers import address
from placement.web.candidate_hosts import without_host


class MissedHost(NamedTuple):
    """A host with providers that came close, what they lack, and the address of its page with that marked."""

    name: str
    sentences: Sequence[str]
    page: str
    drawing: str


def missed_hosts(nearest: Sequence[Mapping[str, Any]], places: Mapping[str, NamedPlace]) -> list[MissedHost]:
    """Return the hosts of near misses in their order, each once."""
    of_host: dict[str, list[Mapping[str, Any]]] = {}
    names = {}
    for miss in nearest:
        provider = miss["resource_provider"]
        called = provider["name"] or provider["uuid"]
        place = places.get(provider["uuid"]) or NamedPlace(called, provider["uuid"], called)
        names[place.root_uuid] = place.root_name
        of_host.setdefault(place.root_uuid, []).append(miss)
    return [
        MissedHost(
            names[root],
            list(_sentences(misses, names[root])),
            _marking(f"/hosts/{root}", misses),
            _marking(f"/hosts/{root}/drawing", misses),
        )
        for root, misses in of_host.items()
    ]


def _sentences(misses: Sequence[Mapping[str, Any]], host: str) -> Iterator[str]:
    """Yield what the providers of a host lack; providers that lack the same share a sentence."""
    alike: dict[tuple[str, int, int], list[str]] = {}
    for miss in misses:
        shortages, sentences = miss.get("shortages", ()), miss["sentences"]
        # Several shortages of a node are in the words of Kubernetes, each amount once.
        if len(shortages) != len(sentences) or ("reasons" in miss and len(shortages) > 1):
            yield from sentences
            continue
        for of, sentence in zip(shortages, sentences, strict=True):
            if of["reason"] == Reason.AMOUNT:
                key = of["resource_class"], of["wanted"], of["free"]
                place = of.get("resource_provider")
                name = without_host(place["name"] or "", host) if place else "several providers"
                alike.setdefault(key, []).append(name)
            else:
                yield _with_units(sentence, of)
    for (name, wanted, free), providers in alike.items():
        missing = units.amount_of(wanted - free, name)
        on = units.listed(providers, 1)
        yield f"{missing} missing: {units.share(free, wanted, name)} free on {on}"


def _with_units(sentence: str, shortage: Mapping[str, Any]) -> str:
    """Return a sentence on a shortage with units in place of the plain amounts of its class."""
    name = shortage.get("resource_class")
    if name is None:
        return sentence
    for part in ("missing", "wanted"):
        if part in shortage:
            plain = f"{shortage[part]} {name}"
            free = shortage.get("free", 0)
            shared = f"{units.share(free, shortage[part], name)} of {units.plain(name)}"
            sentence = sentence.replace(f"{free} of {plain}", shared)
            sentence = sentence.replace(plain, units.amount_of(shortage[part], name))
    return sentence


def _marking(path: str, misses: Sequence[Mapping[str, Any]]) -> str:
    """Return the address of a page of a host, with what is missing there marked."""
    lacks = []
    for miss in misses:
        uuid = miss["resource_provider"]["uuid"]
        for shortage in miss.get("shortages", ()):
            where = (shortage.get("resource_provider") or miss["resource_provider"])["uuid"]
            name, missing = shortage.get("resource_class") or "", shortage.get("missing")
            words = f"{units.amount(missing, name)} missing" if missing else "unsuitable"
            lacks.append(f"{where},{name},{words}")
        if not miss.get("shortages"):
            lacks.append(f"{uuid},,{'; '.join(miss['sentences'])}")
    return f"{address(path)}?{urlencode([('lacks', each) for each in lacks])}"
