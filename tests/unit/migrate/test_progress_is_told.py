"""Progress is told from the beginning of every phase; a shorter line leaves nothing of a longer one."""

import io

import pytest

from placement.migrate.commands import Meter


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_each_phase_is_told_from_its_first_call(monkeypatch: pytest.MonkeyPatch):
    said = io.StringIO()
    monkeypatch.setattr("sys.stderr", said)
    meter = Meter()
    for what in ("providers", "consumers"):
        for done in (1, 2, 3):
            meter(what, done, 3)
    # What comes soon after another line of the same phase waits.
    assert said.getvalue().splitlines() == [
        "providers: 1 of 3",
        "providers: 3 of 3",
        "consumers: 1 of 3",
        "consumers: 3 of 3",
    ]


def test_a_line_of_a_terminal_is_written_over_as_a_whole(monkeypatch: pytest.MonkeyPatch):
    said = Terminal()
    monkeypatch.setattr("sys.stderr", said)
    meter = Meter()
    meter("what providers have", 1000, 2000)
    meter("rest", 1, 1)
    meter("end", 1, 1)
    longer = "what providers have: 1000 of 2000"
    assert said.getvalue() == f"\r{longer}\r{'rest: 1 of 1':{len(longer)}}\n\rend: 1 of 1\n"
