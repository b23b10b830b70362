"""Colour, for people at a terminal that has it."""

from __future__ import annotations

import os
from typing import TextIO

GREEN, YELLOW, RED = "32", "33", "31"
_NO_COLOUR = "NO_COLOR"


def painted(text: str, colour: str, stream: TextIO) -> str:
    """The text in this colour where a terminal shows it and nobody objects by NO_COLOR (no-color.org)."""
    plain = os.environ.get(_NO_COLOUR) or os.environ.get("TERM") == "dumb" or not stream.isatty()
    return text if plain or not text else f"\033[{colour}m{text}\033[0m"
