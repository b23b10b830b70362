"""What people read fits their terminal: no name or UUID is cut, alike ones are folded."""

from __future__ import annotations

import io
from argparse import Namespace

import pytest

from placement.client.cells import amounts, lines
from placement.client.client import Client, ServiceError
from placement.client.commands.allocation import _dedicated_cpus
from placement.client.formats import Yaml
from placement.client.provider_names import fold
from placement.client.tables import WrappedTable, heading

UUID = "08ca8feb-1496-4ab3-9cc5-9c9c113f4fcf"
NAMES = ("#", "Name", "Text", "Amounts", "UUID")
ROWS = [
    (1, "batch/batch-06/core-0-12", "a few words - for people", amounts({"CUSTOM_A": 12}), UUID),
    (10, "edge", None, amounts({"A": 1, "B": 2}), UUID),
]


def written(
    width: int,
    *,
    columns: tuple[str, ...] = (),
    wide: bool = False,
    first: tuple[str, ...] = (),
    kept: tuple[str, ...] = (),
    rare: tuple[str, ...] = (),
) -> str:
    out = io.StringIO()
    given = Namespace(max_width=width, fit_width=False, print_empty=False, columns=columns, wide=wide)
    given.left_out_first, given.kept, given.only_wide = first, kept, rare
    WrappedTable().emit_list(NAMES, ROWS, out, given)
    return out.getvalue()


def test_columns_of_numbers_stand_right_and_what_is_not_there_is_empty():
    rule, header, _, first, *others, last = written(0).splitlines()
    assert rule == last == f"+----+{'-' * 26}+{'-' * 26}+-------------+{'-' * 38}+"
    assert header == f"| #  | Name{' ' * 20} | Text{' ' * 20} | Amounts     | UUID{' ' * 32} |"
    assert first == f"|  1 | batch/batch-06/core-0-12 | a few words - for people | CUSTOM_A=12 | {UUID} |"
    assert others == [
        f"| 10 | edge{' ' * 20} | {' ' * 24} | A=1         | {UUID} |",
        f"|    | {' ' * 24} | {' ' * 24} | B=2         | {' ' * 36} |",
    ]


def test_what_a_command_is_about_stays_and_what_is_rare_comes_on_request():
    assert written(40, kept=("UUID",)).splitlines()[1].split() == ["|", "#", "|", "UUID", "|"]
    assert "UUID" not in written(0, rare=("UUID",))
    assert "UUID" in written(0, rare=("UUID",), wide=True)


@pytest.mark.parametrize(
    "name", [("qos_class", "QoS class"), ("runs_out_first", "Runs out first"), ("#", "#")]
)
def test_columns_have_headings_that_people_read(name: tuple[str, str]):
    assert heading(name[0]) == name[1]


@pytest.mark.parametrize("width", [*range(36, 120, 7), 60, 80, 200])
def test_no_line_is_wider_than_the_terminal_and_no_word_is_broken(width: int, capsys):
    table = written(width)
    assert max(map(len, table.splitlines())) <= width
    left_out = capsys.readouterr().err
    for column, values in {"Name": ["batch/batch-06/core-0-12", "edge"], "UUID": [UUID]}.items():
        shown = all(f" {value} " in table for value in values)
        assert shown != (column in left_out.partition(";")[0])


def test_the_least_important_columns_go_first(capsys):
    for width, names in ((80, ["#", "Name", "Text", "Amounts"]), (50, ["#", "Name", "Amounts"])):
        header = written(width, first=("UUID", "Text")).splitlines()[1]
        assert [name.strip() for name in header.strip("|").split("|")] == names
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "Hidden columns: UUID. Show all with --wide, or choose with -c COLUMN."


@pytest.mark.parametrize("how", [{"columns": ("UUID",)}, {"wide": True}])
def test_columns_that_are_asked_for_are_shown_however_narrow_it_is(how, capsys):
    assert UUID in written(30, **how)
    assert capsys.readouterr().err == ""


def test_details_keep_their_words_whole():
    out = io.StringIO()
    given = Namespace(max_width=50, fit_width=False)
    WrappedTable().emit_one(
        ("uuid", "words"), (UUID, lines(["one two three four five six seven eight nine"])), out, given
    )
    assert f" {UUID} " in out.getvalue()
    assert max(map(len, out.getvalue().splitlines())) <= 50


def test_cores_are_folded_and_hosts_are_not():
    """Providers whose names differ in a number, and that hold the same, are one entry for people."""
    held = [
        *((f"edge/edge-0{number}", {"CUSTOM_PODS": 1}) for number in (1, 2)),
        *((f"edge/edge-01/core-0-{number}", {"PCPU": 2}) for number in (1, 2, 3, 7)),
        ("edge/edge-01/core-0-4", {"PCPU": 1}),
        ("edge/edge-01/core-1-4", {"PCPU": 2}),
    ]
    cores = [("edge/edge-01/core-0-[1-3,7]", {"PCPU": 2}, 4), *((*each, 1) for each in held[-2:])]
    assert list(fold(held)) == [*((*each, 1) for each in held[:2]), *cores]


@pytest.mark.parametrize("status", [403, 404, None, 401, 500, 503])
def test_dedicated_cpus_are_left_out_where_a_service_lacks_the_path_or_the_right(monkeypatch, status):
    """Other failures are told."""

    def refuse(*_: object, **__: object) -> None:
        raise ServiceError("refused", status)

    monkeypatch.setattr(Client, "get", refuse)
    client = Client("http://127.0.0.1:1", "token")
    if status in (403, 404):
        assert _dedicated_cpus(client, "consumer") is None
    else:
        with pytest.raises(ServiceError):
            _dedicated_cpus(client, "consumer")


def test_yaml_repeats_what_occurs_twice():
    out, twice = io.StringIO(), ["A"]
    Yaml().emit_list(("first", "second"), [(lines(twice), lines(twice))], out, Namespace())
    assert out.getvalue() == "- first:\n  - A\n  second:\n  - A\n"
