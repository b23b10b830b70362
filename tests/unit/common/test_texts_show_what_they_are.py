"""Names from strangers neither command a terminal, nor forge a line, nor are calculated."""

from __future__ import annotations

import csv
import io
import sys
import unicodedata

import pytest

from placement.common.texts import disturbing, printable, spreadsheet_cell

BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
WIDTHLESS = "\u200b\u200c\u200d\u2060\ufeff\u00ad"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("edge/edge-01", "edge/edge-01"),
        ("Zürich 東京 \N{GRINNING FACE}", "Zürich 東京 \N{GRINNING FACE}"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\x1b]0;owned\x07", r"\x1b]0;owned\x07"),
        ("a\r\nb\tc", r"a\r\nb\tc"),
        ("\x9b31m\x85", r"\x9b31m\x85"),
        ("\u2028\u2029", r"\u2028\u2029"),
        ("user\u202eeman", r"user\u202eeman"),
        ("a\u200bb", r"a\u200bb"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_a_text_is_one_line_of_visible_characters(text: str, shown: str):
    assert printable(text) == shown


def test_no_control_mark_of_direction_or_character_without_width_is_printed():
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    left = printable(every)
    assert left.isprintable()
    assert not set(left) & set(BIDI + WIDTHLESS)
    assert {unicodedata.category(each) for each in left}.isdisjoint({"Cc", "Cf", "Cs", "Zl", "Zp"})


SIGNS = [*"=+-@\t\r\n\uff1d\uff0b\uff0d\uff20", " =", "\u00a0@"]


@pytest.mark.parametrize("sign", SIGNS)
def test_no_text_is_a_formula(sign: str):
    cell = spreadsheet_cell(f'{sign}HYPERLINK("http://evil")\x1b[2J')
    assert cell.startswith("'")
    assert cell.isprintable()


def test_values_stay_what_they_are():
    assert [spreadsheet_cell(value) for value in (None, -5, 1.5, "a,b", "a=b")] == ["", -5, 1.5, "a,b", "a=b"]
    file = io.StringIO()
    csv.writer(file).writerow([spreadsheet_cell('x"y'), spreadsheet_cell("a\nb")])
    assert file.getvalue() == '"x""y",a\\nb\r\n'


@pytest.mark.parametrize("character", [*"\x00\x1b\n\r\t\x7f\x85\x9b\u2028\u2029", *BIDI])
def test_names_have_no_controls_and_no_marks_of_direction(character: str):
    assert disturbing(f"a{character}b") == f"U+{ord(character):04X}"


@pytest.mark.parametrize(
    "name",
    ["rack 7", "پیوند\u200cها", "क्\u200dष", "\N{MAN}\u200d\N{PERSONAL COMPUTER}", "a\u00a0b", "\u0645\u062d"],
)
def test_names_of_any_language_are_names(name: str):
    assert disturbing(name) is None
