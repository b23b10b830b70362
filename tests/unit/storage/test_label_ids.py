"""Ids of labels are right whatever was asked before, also when what is remembered was thrown away."""

from __future__ import annotations

import pytest

from placement.storage import consumers
from placement.storage.consumers import LabelIds
from placement.storage.database import Database


def test_known_and_new_labels_are_told_together_when_memory_is_full(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "_MOST_KNOWN", 3)
    labels = LabelIds(database)
    expected = {}
    for number in range(8):
        wanted = [("project", "p"), ("type", "T"), ("user", f"u{number}"), ("user", f"u{number // 2}")]
        given = labels.of(wanted)
        assert given.keys() == set(wanted)
        for label, id_ in given.items():
            assert expected.setdefault(label, id_) == id_
    assert LabelIds(database).of(expected) == expected


def test_labels_are_told_while_others_make_room(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "_MOST_KNOWN", 2)
    labels = LabelIds(database)
    project = labels.of([("project", "p")])
    register = labels._register

    def while_another_makes_room(unknown: object) -> dict[tuple[str, str], int]:
        monkeypatch.setattr(labels, "_register", register)
        for number in range(4):
            labels.of([("user", f"other{number}")])
        return register(unknown)  # type: ignore[arg-type]

    monkeypatch.setattr(labels, "_register", while_another_makes_room)
    given = labels.of([("project", "p"), ("user", "u")])
    assert given == {**project, **LabelIds(database).of([("user", "u")])}
