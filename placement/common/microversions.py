"""Microversions: negotiation, and the one table of what came when. Source: placement-api.md, "Versioning"."""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

SERVICE = "placement"
HEADER = "openstack-api-version"
_NUMBERS = re.compile(r"\s*(-?\d+)\s*\.\s*(-?\d+)\s*")


class Microversion(NamedTuple):
    """A negotiated version."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    def offers(self, feature: Feature) -> bool:
        """Return whether the feature exists in this version."""
        return self >= feature.value


class Feature(Enum):
    """The changes of the API; the value is the first microversion that has the change."""

    AGGREGATES = Microversion(1, 1)
    RESOURCE_CLASSES = Microversion(1, 2)
    PROVIDERS_BY_AGGREGATE = Microversion(1, 3)
    PROVIDERS_BY_RESOURCES = Microversion(1, 4)
    DELETE_ALL_INVENTORIES = Microversion(1, 5)
    TRAITS = Microversion(1, 6)
    PUT_CREATES_CLASS = Microversion(1, 7)
    CONSUMER_PROJECT = Microversion(1, 8)
    USAGES = Microversion(1, 9)
    CANDIDATES = Microversion(1, 10)
    ALLOCATIONS_LINK = Microversion(1, 11)
    ALLOCATIONS_BY_PROVIDER = Microversion(1, 12)
    POST_ALLOCATIONS = Microversion(1, 13)
    NESTED_PROVIDERS = Microversion(1, 14)
    CACHE_HEADERS = Microversion(1, 15)
    CANDIDATES_LIMIT = Microversion(1, 16)
    CANDIDATES_TRAITS = Microversion(1, 17)
    PROVIDERS_BY_TRAITS = Microversion(1, 18)
    AGGREGATES_GENERATION = Microversion(1, 19)
    POST_PROVIDER_BODY = Microversion(1, 20)
    CANDIDATES_BY_AGGREGATE = Microversion(1, 21)
    FORBIDDEN_TRAITS = Microversion(1, 22)
    ERROR_CODES = Microversion(1, 23)
    REPEATED_MEMBER_OF = Microversion(1, 24)
    GRANULAR_GROUPS = Microversion(1, 25)
    ZERO_CAPACITY = Microversion(1, 26)
    ALL_CLASSES_IN_SUMMARIES = Microversion(1, 27)
    CONSUMER_GENERATIONS = Microversion(1, 28)
    NESTED_CANDIDATES = Microversion(1, 29)
    RESHAPER = Microversion(1, 30)
    CANDIDATES_IN_TREE = Microversion(1, 31)
    FORBIDDEN_AGGREGATES = Microversion(1, 32)
    STRING_SUFFIXES = Microversion(1, 33)
    MAPPINGS = Microversion(1, 34)
    ROOT_REQUIRED = Microversion(1, 35)
    SAME_SUBTREE = Microversion(1, 36)
    REPARENTING = Microversion(1, 37)
    CONSUMER_TYPES = Microversion(1, 38)
    ANY_OF_TRAITS = Microversion(1, 39)


OLDEST = Microversion(1, 0)
NEWEST = max(feature.value for feature in Feature)


class InvalidVersion(ValueError):
    """An error for a header that cannot be parsed."""


class UnsupportedVersion(ValueError):
    """An error for a version that the service does not have."""


# Clients ask for few versions, and repeat them with all requests.
@lru_cache(maxsize=256)
def negotiate(header: str | None) -> Microversion:
    """Return the version that a request asks for; 1.0 if it asks for none.

    The last entry for this service counts. Raises InvalidVersion, UnsupportedVersion with the text as sent.
    """
    wanted = None
    for entry in (header or "").split(","):
        service, *text = entry.split(maxsplit=1) or [""]
        if service.lower() == SERVICE and text:
            wanted = text[0].strip()
    if wanted is None:
        return OLDEST
    if wanted == "latest":
        return NEWEST
    numbers = _NUMBERS.fullmatch(wanted) if wanted.isascii() else None
    if numbers is None:
        raise InvalidVersion(wanted)
    version = Microversion(*(_number(text) for text in numbers.groups()))
    if not OLDEST <= version <= NEWEST:
        raise UnsupportedVersion(wanted)
    return version


def _number(text: str) -> int:
    """Return the number, cut to nine digits: versions are shorter, and longer texts would cost time."""
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    return int(f"{sign}{digits.lstrip('0')[:9] or '0'}")
