"""Complex functions, banners, aliases and names of variables are found where they are."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from tests.readability import Module, banners_of, complexity, places_in


def module(text: str, path: str = "one.py") -> Module:
    text = dedent(text)
    return Module(path, text, ast.parse(text))


def found(figure: str, *texts: str) -> list[str]:
    modules = [module(text, f"{number}.py") for number, text in enumerate(texts)]
    return [str(place) for place in places_in(modules)[figure]]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return a", 1),
        ("return a if b else c", 2),
        ("return a and b and c", 3),
        ("return [x for x in a if x for y in x]", 3),
        ("if a:\n  pass\nelif b:\n  pass\nelse:\n  pass", 3),
        ("with a:\n  assert b", 3),
        ("try:\n  a()\nexcept ValueError:\n  pass", 2),
        ("match a:\n  case 1: pass\n  case _: pass", 3),
        ("def inner():\n  while a:\n    pass", 2),
    ],
)
def test_each_branch_is_a_way(body: str, expected: int):
    assert complexity(ast.parse(body)) == expected


def test_functions_above_a_complexity_are_listed_with_it():
    often = "def f(a):\n" + "    if a: pass\n" * 15
    assert found("functions above complexity 15", often, "def g(): pass") == ["0.py:1 f 16"]
    assert found("functions above complexity 20", often) == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("import a\n\n# Of another module.\n\nb = 1\n", [3]),
        ("import a\n\n# Of another module,\n# in two lines.\n\nb = 1\n", [3]),
        ("import a\n\n# Of what follows.\nb = 1\n", []),
        ("import a\n# Of what precedes.\n\nb = 1\n", []),
        ("def f():\n    a()\n\n    # A step.\n\n    b()\n", []),
        ("# Of a script.\n\nimport a\n", []),
        ("a = 1\n\n# -- rows --\n\nb = 1\n", []),
    ],
)
def test_banners_stand_alone_at_the_margin(text: str, lines: list[int]):
    assert [banner.line for banner in banners_of(module(text))] == lines


def test_banners_are_counted_where_the_public_name_comes_later_and_beside_a_single_class():
    late = """
    import a

    # Steps.

    def _step(): pass


    class Whole: pass

    # More.

    def _more(): pass
    """
    several = "class One: pass\n\n# More.\n\nclass Two: pass\n"
    decorated = "@decorator\n# Of the class.\n\nclass One: pass\n"
    texts = (late, several, decorated)
    assert found("banners before the first public name", *texts) == ["0.py:4 # Steps."]
    assert found("banners in modules with one class", *texts) == ["0.py:4 # Steps.", "0.py:11 # More."]
    assert len(found("banners", *texts)) == 3


def test_aliases_are_found_in_two_modules_and_beside_a_class():
    figure = "aliases twice"
    assert found(figure, "Rows = list[int]\n", "Rows = dict[int, int]\n") == ["0.py:1 Rows 1.py:1"]
    assert found(figure, "class Rows: pass\n", "Rows: TypeAlias = list\n") == ["0.py:1 Rows 1.py:1"]
    assert found(figure, "_Rows = list[int]\n", "Rows = dict[int, int]\n") == ["0.py:1 Rows 1.py:1"]
    assert found(figure, "class Rows: pass\nROWS = 1\n", "ROWS = 2\nrows = 3\n") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def f(board: MoveSimulation): pass", ["board: MoveSimulation"]),
        ("def f(boards: Sequence[MoveSimulation] | None): pass", ["boards: MoveSimulation"]),
        ("class Plan:\n    board: MoveSimulation | None", ["board: MoveSimulation"]),
        ("board = MoveSimulation()", ["board: MoveSimulation"]),
        ("self.board = _MoveSimulation()", ["board: _MoveSimulation"]),
        ("def f(simulation: MoveSimulation, moves: list[MoveSimulation]): pass", []),
        ("BOARD = MoveSimulation()", []),
        ("def f(board: Unknown): pass", []),
        (
            "def f(board: MoveSimulation): pass\n\ndef g(board: MoveSimulation): pass",
            ["board: MoveSimulation"],
        ),
    ],
)
def test_variables_share_a_word_with_their_class(text: str, expected: list[str]):
    classes = "class MoveSimulation: pass\nclass _MoveSimulation: pass\n"
    places = found("pairs of name and type without a common word", classes, text)
    assert [place.partition(" ")[2] for place in places] == expected


def test_fields_of_schemas_are_called_as_they_are_in_bodies():
    text = "class Integer: pass\n\nclass BodySchema:\n    limit = Integer()\n"
    assert found("pairs of name and type without a common word", text) == []
