"""Numbers as arguments."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """A whole number from 1 on. Raises ArgumentTypeError, which comes with the usage."""
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, not {text!r}")
    return int(text)
