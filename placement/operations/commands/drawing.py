"""Provider trees as text: branches, a bar for each resource class, cores a character each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TextIO

from placement.operations.commands.colour import GREEN, RED, YELLOW, painted
from placement.operations.commands.provider_tree import Level, Provider

_BAR_WIDTH, _SHORT_BAR_WIDTH = 20, 15
_CELLS_PER_LINE = 64
# Fewer alike leaves are clearer when each has its name.
_ALIKE = 4
_NEARLY_FULL, _FULL = 0.75, 0.95


class _Pen(NamedTuple):
    """The characters to draw with."""

    branch: str
    last: str
    trunk: str
    full: str
    part: str
    free: str
    none: str


_LINES = _Pen("├─ ", "└─ ", "│  ", "█", "▄", "·", "-")
_ASCII = _Pen("+- ", "`- ", "|  ", "#", "+", ".", "-")


def draw(root: Provider, stdout: TextIO) -> list[str]:
    """The lines of a drawing, in characters that the output can take."""
    artist = _Artist(_pen(stdout), f"{root.name}/", stdout)
    return [root.name, *artist.below(root, "")]


def _pen(stdout: TextIO) -> _Pen:
    try:
        "".join(_LINES).encode(stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return _ASCII
    return _LINES


def bar(used: int, capacity: int, stdout: TextIO) -> str:
    """How much of something is in use, in characters that the output can take."""
    return _Artist(_pen(stdout), "", stdout, _SHORT_BAR_WIDTH).bar(Level(used, capacity))


class _Artist:
    def __init__(self, pen: _Pen, prefix: str, stdout: TextIO, width: int = _BAR_WIDTH) -> None:
        self._pen = pen
        self._width = width
        self._stdout = stdout
        self._prefix = prefix

    def below(self, provider: Provider, margin: str) -> Iterator[str]:
        """Everything that belongs to a provider, behind the margin."""
        alike, others = _parted(provider.children)
        inner = margin + (self._pen.trunk if others else " " * len(self._pen.trunk))
        width = max((len(name) for name in provider.levels), default=0)
        for name, level in sorted(provider.levels.items()):
            yield f"{inner}{name:{width}}  {self.bar(level)}  {level.used}/{level.capacity}"
        for leaves in alike:
            yield from (f"{inner}{line}" for line in self._cells(leaves))
        for child in others:
            last = child is others[-1]
            yield f"{margin}{self._pen.last if last else self._pen.branch}{self._short(child)}"
            yield from self.below(child, margin + (" " * len(self._pen.trunk) if last else self._pen.trunk))

    def bar(self, level: Level) -> str:
        """A bar that is filled as far as something is used."""
        filled = min(self._width, level.used * self._width // level.capacity) if level.capacity else 0
        # Little is not nothing.
        begun = self._pen.part if level.used and not filled else ""
        used = self._pen.full * filled + begun
        free = self._pen.free * (self._width - len(used))
        return painted(used, _colour(level), self._stdout) + free

    def _cells(self, leaves: Sequence[Provider]) -> Iterator[str]:
        """Alike leaves, such as the cores of a NUMA node: their sums, then a character for each."""
        ((name, _),) = leaves[0].levels.items()
        levels = [leaf.levels[name] for leaf in leaves]
        used, capacity = sum(level.used for level in levels), sum(level.capacity for level in levels)
        first, last = self._short(leaves[0]), self._short(leaves[-1])
        yield f"{name}  {used}/{capacity} on {len(leaves)} providers, {first} to {last}"
        cells = "".join(self._cell(level) for level in levels)
        for start in range(0, len(cells), _CELLS_PER_LINE):
            yield f"  {cells[start : start + _CELLS_PER_LINE]}"

    def _cell(self, level: Level) -> str:
        if not level.used:
            return self._pen.free if level.capacity else self._pen.none
        return self._pen.full if level.used >= level.capacity else self._pen.part

    def _short(self, provider: Provider) -> str:
        """Its name, without the name of the root where that comes first."""
        return provider.name.removeprefix(self._prefix)


def _colour(level: Level) -> str:
    """How near to its end a resource is."""
    share = level.used / level.capacity if level.capacity else 1
    return RED if share >= _FULL else YELLOW if share >= _NEARLY_FULL else GREEN


def _parted(children: Sequence[Provider]) -> tuple[list[list[Provider]], list[Provider]]:
    """Leaves that offer the same single class, class by class, and all other children."""
    leaves: dict[str, list[Provider]] = {}
    for child in children:
        if not child.children and len(child.levels) == 1:
            leaves.setdefault(next(iter(child.levels)), []).append(child)
    alike = [group for group in leaves.values() if len(group) >= _ALIKE]
    drawn = {leaf.uuid for group in alike for leaf in group}
    return alike, [child for child in children if child.uuid not in drawn]
