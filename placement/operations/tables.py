"""Tables for terminals."""

from __future__ import annotations

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows under a header, cells in the middle of their columns."""
    texts = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(cell) for cell in column) for column in zip(*texts, strict=True)]
    rule = "+".join(["", *("-" * (width + 2) for width in widths), ""])
    lines = [
        "|".join(["", *(f" {cell.center(width)} " for cell, width in zip(row, widths, strict=True)), ""])
        for row in texts
    ]
    return "\n".join([rule, lines[0], rule, *lines[1:], rule])


def stacked(title: str, blocks: Sequence[Sequence[str]]) -> str:
    """Blocks of lines below a title, one column wide."""
    width = max(len(line) for line in [title, *(line for block in blocks for line in block)])
    rule = f"+{'-' * (width + 2)}+"
    parts = [rule]
    for block in [[title], *blocks]:
        parts += [*(f"| {line.ljust(width)} |" for line in block), rule]
    return "\n".join(parts)
