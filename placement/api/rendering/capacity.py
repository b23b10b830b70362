"""How many more there is room for, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from placement.services.planning.answer import HostRoom, KindRoom, Room


def capacity_body(rooms: Mapping[str, KindRoom]) -> dict[str, Any]:
    """The answer for some kinds by name."""
    return {"kinds": {name: _kind(room) for name, room in rooms.items()}}


def _kind(room: KindRoom) -> dict[str, Any]:
    body: dict[str, Any] = {"total": _room(room.total)}
    if room.clusters is not None:
        body["clusters"] = [{"cluster": name, **_room(each)} for name, each in room.clusters.items()]
    if room.aggregates is not None:
        body["aggregates"] = [{"aggregate": uuid, **_room(each)} for uuid, each in room.aggregates.items()]
    if room.hosts is not None:
        body["hosts"] = [_host(each) for each in room.hosts]
    return body


def _room(room: Room) -> dict[str, Any]:
    return {**asdict(room), "exact": room.lower == room.upper}


def _host(room: HostRoom) -> dict[str, Any]:
    body = {**asdict(room), "exact": room.lower == room.upper}
    if room.like is None:
        del body["like"]
    return body
