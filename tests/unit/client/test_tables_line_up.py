"""Tables for terminals are as wide as what is in them, every line alike."""

from placement.client.formats import stacked, table


def test_cells_stand_in_the_middle_of_their_columns():
    assert table(("Name", "#"), [("a", 1), ("longer", 10)]).splitlines() == [
        "+--------+----+",
        "|  Name  | #  |",
        "+--------+----+",
        "|   a    | 1  |",
        "| longer | 10 |",
        "+--------+----+",
    ]


def test_a_table_without_rows_has_its_header():
    assert table(("A",), []).splitlines() == ["+---+", "| A |", "+---+", "+---+"]


def test_blocks_stand_below_their_title():
    assert stacked("Checks", [["one", "two lines"], ["x"]]).splitlines() == [
        "+-----------+",
        "| Checks    |",
        "+-----------+",
        "| one       |",
        "| two lines |",
        "+-----------+",
        "| x         |",
        "+-----------+",
    ]
