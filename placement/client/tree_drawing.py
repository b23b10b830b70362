"""Provider trees as text: branches, a bar for each resource class, cores a character each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from placement.client.cells import lines
from placement.client.provider_names import find_provider
from placement.client.terminal import GREEN, RED, YELLOW, can_write, paint
from placement.engine.domain.inventories import Inventory

if TYPE_CHECKING:
    from placement.client.client import Client


@dataclass(slots=True)
class DrawnProvider:
    """A provider with the providers below it."""

    uuid: str
    name: str
    traits: Sequence[str]
    levels: Mapping[str, Level]
    children: list[DrawnProvider] = field(default_factory=list)


class Level(NamedTuple):
    """The amount of a resource class that is used, and the amount that there is."""

    used: int
    capacity: int


COLUMNS = ("provider", "parent", "resource", "used", "capacity", "traits", "uuid")


def rows(provider: DrawnProvider, parent: str | None = None) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each resource class of each provider, parents first; one row if there is none."""
    described = lines(provider.traits), provider.uuid
    if not provider.levels:
        yield provider.name, parent, None, 0, 0, *described
    for name, level in sorted(provider.levels.items()):
        yield provider.name, parent, name, *level, *described
    for child in provider.children:
        yield from rows(child, provider.name)


def from_node(body: Mapping[str, Any]) -> DrawnProvider:
    """Return the tree in the description of a node."""
    return DrawnProvider(
        body["uuid"],
        body["name"],
        body["traits"],
        {name: Level(record["used"], record["capacity"]) for name, record in body["resources"].items()},
        [from_node(child) for child in body["children"]],
    )


def fetch(client: Client, uuid_or_name: str) -> DrawnProvider:
    """Fetch the whole tree that the provider is in, with calls that every placement service offers."""
    root = find_provider(client, uuid_or_name)["root_provider_uuid"]
    listed = client.get("/resource_providers", [("in_tree", root)])["resource_providers"]
    providers = {}
    for entry in listed:
        own = f"/resource_providers/{entry['uuid']}"
        used = client.get(f"{own}/usages")["usages"]
        inventories = client.get(f"{own}/inventories")["inventories"]
        levels = {
            name: Level(used.get(name, 0), Inventory(**record).capacity)
            for name, record in inventories.items()
        }
        traits = client.get(f"{own}/traits")["traits"]
        providers[entry["uuid"]] = DrawnProvider(entry["uuid"], entry["name"], traits, levels)
    for entry in listed:
        if entry["parent_provider_uuid"] is not None:
            providers[entry["parent_provider_uuid"]].children.append(providers[entry["uuid"]])
    return providers[root]


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


def draw(provider: DrawnProvider, stdout: TextIO) -> list[str]:
    """Return the lines of a drawing of a whole tree, in characters that the output can take."""
    artist = _TextArtist(_pen(stdout), f"{provider.name}/", stdout)
    return [provider.name, *artist.below(provider, "")]


def _pen(stdout: TextIO) -> _Pen:
    return _LINES if can_write(stdout, _LINES) else _ASCII


def bar(used: int, capacity: int, stdout: TextIO) -> str:
    """Return a bar that shows how much of something is in use, in characters that the output can take."""
    return _TextArtist(_pen(stdout), "", stdout, _SHORT_BAR_WIDTH).bar(Level(used, capacity))


@dataclass
class _TextArtist:
    _pen: _Pen
    _prefix: str
    _stdout: TextIO
    _width: int = _BAR_WIDTH

    def below(self, provider: DrawnProvider, margin: str) -> Iterator[str]:
        """Yield the lines of everything that belongs to a provider, behind the margin."""
        alike = _alike_leaves(provider)
        drawn = {leaf.uuid for group in alike for leaf in group}
        others = [child for child in provider.children if child.uuid not in drawn]
        inner = margin + (self._pen.trunk if others else " " * len(self._pen.trunk))
        yield from (f"{inner}{line}" for line in self._levels(provider))
        for group in alike:
            yield from (f"{inner}{line}" for line in self._cells(group))
        for child in others:
            yield from self._branch(child, margin, is_last=child is others[-1])

    def _levels(self, provider: DrawnProvider) -> Iterator[str]:
        """Yield a line for each resource class of a provider."""
        width = max((len(name) for name in provider.levels), default=0)
        for name, level in sorted(provider.levels.items()):
            yield f"{name:{width}}  {self.bar(level)}  {level.used}/{level.capacity}"

    def _branch(self, provider: DrawnProvider, margin: str, *, is_last: bool) -> Iterator[str]:
        """Yield the lines of a provider and of everything below it."""
        yield f"{margin}{self._pen.last if is_last else self._pen.branch}{self._short(provider)}"
        yield from self.below(provider, margin + (" " * len(self._pen.trunk) if is_last else self._pen.trunk))

    def bar(self, level: Level) -> str:
        """Return a bar that is filled as far as something is used."""
        filled = min(self._width, level.used * self._width // level.capacity) if level.capacity else 0
        # Little is not nothing.
        begun = self._pen.part if level.used and not filled else ""
        used = self._pen.full * filled + begun
        free = self._pen.free * (self._width - len(used))
        share = level.used / level.capacity if level.capacity else 1
        colour = RED if share >= _FULL else YELLOW if share >= _NEARLY_FULL else GREEN
        return paint(used, colour, self._stdout) + free

    def _cells(self, providers: Sequence[DrawnProvider]) -> Iterator[str]:
        """Yield lines for alike leaves, such as cores of a NUMA node: sums, then a character for each."""
        ((name, _),) = providers[0].levels.items()
        levels = [each.levels[name] for each in providers]
        used, capacity = sum(level.used for level in levels), sum(level.capacity for level in levels)
        first, last = self._short(providers[0]), self._short(providers[-1])
        cells = "".join(self._cell(level) for level in levels)
        legend = f"; {self._pen.none} offers none" if self._pen.none in cells else ""
        yield f"{name}  {used}/{capacity} on {len(providers)} providers, {first} to {last}{legend}"
        for start in range(0, len(cells), _CELLS_PER_LINE):
            yield f"  {cells[start : start + _CELLS_PER_LINE]}"

    def _cell(self, level: Level) -> str:
        if not level.used:
            return self._pen.free if level.capacity else self._pen.none
        return self._pen.full if level.used >= level.capacity else self._pen.part

    def _short(self, provider: DrawnProvider) -> str:
        """Return its name, without the name of the root where that comes first."""
        return provider.name.removeprefix(self._prefix)


def _alike_leaves(provider: DrawnProvider) -> list[list[DrawnProvider]]:
    """Return the groups of leaves that offer one and the same class, and are many, so one drawing has all."""
    leaves: dict[str, list[DrawnProvider]] = {}
    for child in provider.children:
        if not child.children and len(child.levels) == 1:
            leaves.setdefault(next(iter(child.levels)), []).append(child)
    return [group for group in leaves.values() if len(group) >= _ALIKE]
