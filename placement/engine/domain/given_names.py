"""Names that were given to projects, users and consumers, as OpenStack sends their ids only."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class GivenNameKind(StrEnum):
    """A kind of things that can be given a name."""

    PROJECT = "project"
    USER = "user"
    CONSUMER = "consumer"


class NameKey(NamedTuple):
    """A thing that can have a name: its kind, and its id as consumers have it."""

    kind: str
    uuid: str


class GivenName(NamedTuple):
    """A name, the user that wrote it, and when (UTC without a zone)."""

    id: int
    kind: str
    uuid: str
    name: str
    written_by: str | None
    written_at: datetime.datetime


class WrittenNames(NamedTuple):
    """How many names of a call were written, deleted, and left as they were."""

    written: int
    deleted: int
    unchanged: int


@dataclass(frozen=True, slots=True)
class NamesById:
    """The names of some projects, users and consumers, by their ids."""

    projects: Mapping[str, str] = field(default_factory=dict)
    users: Mapping[str, str] = field(default_factory=dict)
    consumers: Mapping[str, str] = field(default_factory=dict)


NO_NAMES = NamesById()
