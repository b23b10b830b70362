"""Provider trees as text: branches, a bar for each resource class, cores a character each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from placement.client import display
from placement.client.formats import GREEN, RED, YELLOW, cpu_list, lines, painted
from placement.engine.domain.inventories import Inventory
from placement.engine.numa.cpus import format_cpu_list

if TYPE_CHECKING:
    from placement.client.client import Client


# A provider tree as the commands handle it, and where it comes from.


COLUMNS = ("provider", "parent", "resource", "used", "capacity", "traits", "uuid")


class Level(NamedTuple):
    """The amount of a resource class that is used, and the amount that there is."""

    used: int
    capacity: int


@dataclass(slots=True)
class DrawnProvider:
    """A provider with the providers below it."""

    uuid: str
    name: str
    traits: Sequence[str]
    levels: Mapping[str, Level]
    children: list[DrawnProvider] = field(default_factory=list)


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
    root = display.provider(client, uuid_or_name)["root_provider_uuid"]
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


def draw(root: DrawnProvider, stdout: TextIO) -> list[str]:
    """Return the lines of a drawing, in characters that the output can take."""
    artist = _TextArtist(_pen(stdout), f"{root.name}/", stdout)
    return [root.name, *artist.below(root, "")]


def _pen(stdout: TextIO) -> _Pen:
    return _LINES if _takes(stdout, _LINES) else _ASCII


def _takes(stdout: TextIO, characters: Iterable[str]) -> bool:
    """Return whether the encoding of the output has all these characters."""
    try:
        "".join(characters).encode(stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


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
        # Leaves that offer one and the same class are drawn together if they are many.
        leaves: dict[str, list[DrawnProvider]] = {}
        for child in provider.children:
            if not child.children and len(child.levels) == 1:
                leaves.setdefault(next(iter(child.levels)), []).append(child)
        alike = [group for group in leaves.values() if len(group) >= _ALIKE]
        drawn = {leaf.uuid for group in alike for leaf in group}
        others = [child for child in provider.children if child.uuid not in drawn]
        inner = margin + (self._pen.trunk if others else " " * len(self._pen.trunk))
        width = max((len(name) for name in provider.levels), default=0)
        for name, level in sorted(provider.levels.items()):
            yield f"{inner}{name:{width}}  {self.bar(level)}  {level.used}/{level.capacity}"
        for group in alike:
            yield from (f"{inner}{line}" for line in self._cells(group))
        for child in others:
            last = child is others[-1]
            yield f"{margin}{self._pen.last if last else self._pen.branch}{self._short(child)}"
            yield from self.below(child, margin + (" " * len(self._pen.trunk) if last else self._pen.trunk))

    def bar(self, level: Level) -> str:
        """Return a bar that is filled as far as something is used."""
        filled = min(self._width, level.used * self._width // level.capacity) if level.capacity else 0
        # Little is not nothing.
        begun = self._pen.part if level.used and not filled else ""
        used = self._pen.full * filled + begun
        free = self._pen.free * (self._width - len(used))
        share = level.used / level.capacity if level.capacity else 1
        colour = RED if share >= _FULL else YELLOW if share >= _NEARLY_FULL else GREEN
        return painted(used, colour, self._stdout) + free

    def _cells(self, leaves: Sequence[DrawnProvider]) -> Iterator[str]:
        """Yield lines for alike leaves, such as cores of a NUMA node: sums, then a character for each."""
        ((name, _),) = leaves[0].levels.items()
        levels = [leaf.levels[name] for leaf in leaves]
        used, capacity = sum(level.used for level in levels), sum(level.capacity for level in levels)
        first, last = self._short(leaves[0]), self._short(leaves[-1])
        cells = "".join(self._cell(level) for level in levels)
        legend = f"; {self._pen.none} has none to use" if self._pen.none in cells else ""
        yield f"{name}  {used}/{capacity} on {len(leaves)} providers, {first} to {last}{legend}"
        for start in range(0, len(cells), _CELLS_PER_LINE):
            yield f"  {cells[start : start + _CELLS_PER_LINE]}"

    def _cell(self, level: Level) -> str:
        if not level.used:
            return self._pen.free if level.capacity else self._pen.none
        return self._pen.full if level.used >= level.capacity else self._pen.part

    def _short(self, provider: DrawnProvider) -> str:
        """Return its name, without the name of the root where that comes first."""
        return provider.name.removeprefix(self._prefix)


# The owners of the logical CPUs of a node, as text: a character for each CPU, cores apart.


_CPUS_PER_LINE = 64

Cpu = Mapping[str, Any]


class _Sign(NamedTuple):
    """A sign for the CPUs of an owner, also where only ASCII can be written, and its meaning."""

    line: str
    ascii: str
    meaning: str


_OWNERS = {
    "pod": _Sign("█", "#", "a pod's own"),
    "several": _Sign("▓", "%", "several pods'"),
    "kubelet": _Sign("k", "k", "pinned by kubelet"),
    "reported": _Sign("?", "?", "of pods that are known by report only"),
    "reserved": _Sign("r", "r", "reserved"),
    "system": _Sign("s", "s", "for the system"),
    "others": _Sign("o", "o", "of consumers that are no pods"),
    "reservation": _Sign("▒", "+", "kept by reservations, shared until their owners come"),
    "kubelet-reserved": _Sign("~", "~", "shared, reserved by kubelet"),
    "free": _Sign("·", ".", "shared, free to be claimed"),
}
_UNKNOWN = _Sign("!", "!", "of an unknown consumer")


def draw_cpu_owners(cpus: Sequence[Cpu], stdout: TextIO) -> Iterator[str]:
    """Yield a line or more for each NUMA node, siblings side by side, then the legend of what occurs."""
    plain = not _takes(stdout, (sign.line for sign in _OWNERS.values()))
    places: dict[str, list[Cpu]] = {}
    for cpu in sorted(cpus, key=lambda cpu: (cpu["socket"], cpu["numa"], cpu["core"], cpu["cpu"])):
        places.setdefault(f"socket {cpu['socket']}, numa-{cpu['numa']}", []).append(cpu)
    yield "CPUs"
    for place, mine in places.items():
        yield f"   {place}: {format_cpu_list(cpu['cpu'] for cpu in mine)}"
        cores: dict[int, str] = {}
        for cpu in mine:
            sign = _OWNERS.get(_owner(cpu), _UNKNOWN)
            cores[cpu["core"]] = cores.get(cpu["core"], "") + (sign.ascii if plain else sign.line)
        each = max(1, _CPUS_PER_LINE // max(map(len, cores.values())))
        for start in range(0, len(cores), each):
            yield f"     {' '.join(list(cores.values())[start : start + each])}"
    occurring = {_owner(cpu) for cpu in cpus}
    for owner, sign in _OWNERS.items():
        if owner in occurring:
            yield f"   {sign.ascii if plain else sign.line} {sign.meaning}"
    if occurring - _OWNERS.keys():
        yield f"   {_UNKNOWN.line} {_UNKNOWN.meaning}"


def _owner(cpu: Cpu) -> str:
    return "several" if cpu.get("shared_with") else str(cpu["owner"])


def notes(node: Mapping[str, Any]) -> Iterator[str]:
    """Yield the pools as they are and as reported, where pods run, reservations, and remarks on the node."""
    for heading, texts in (
        ("Pools", _pools(node)),
        ("Pods", _pods(node)),
        ("Reservations", _reservations(node)),
        ("Remarks", node["remarks"]),
    ):
        indented = [f"   {text}" for text in texts]
        yield from [heading, *indented] if indented else ()


def _pools(node: Mapping[str, Any]) -> Iterator[str]:
    for kind in ("ls", "be"):
        reported = {pool["node"]: pool["cpuset"] for pool in node[f"reported_{kind}_pools"]}
        for pool in node[f"{kind}_pools"]:
            numa = pool["node"]
            shown = f", reported {reported[numa] or 'none'}" if numa in reported else ""
            yield f"{kind.upper()}, numa-{numa}: {pool['cpuset'] or 'none'}{shown}"


def _pods(node: Mapping[str, Any]) -> Iterator[str]:
    for pod in node["pods"]:
        name = f"{pod['namespace']}/{pod['name']}"
        first = {cpu["pod"] for cpu in node["cpus"] if name in cpu.get("shared_with", ())}
        own = ", its own" if pod["cpuset"] and pod["container_cpus"] else ""
        held = f"; of its {pod['cpuset']} some are held by {', '.join(sorted(first))}, too" if first else ""
        yield f"{name}: {cpu_list(pod['container_cpus'])}{own}{held}"
    for members, label in (("kubelet_pods", "pinned by kubelet"), ("reported_pods", "known by report only")):
        for pod in node[members]:
            yield f"{pod['namespace']}/{pod['name']}: {pod['cpuset'] or 'none'}, {label}"


def _reservations(node: Mapping[str, Any]) -> Iterator[str]:
    for kept in node.get("reservations", ()):
        left = kept["left"]
        parts = [f"CPUs {left['cpuset']}"] if left["cpuset"] else []
        parts += [f"{name} {amount}" for name, amount in left["resources"].items()]
        yield f"{kept['name']} keeps {', '.join(parts) or 'nothing any more'}"


# A plan as text: what it achieves, its moves, and its hosts before and after.


_OF = {"fit": "requests fit", "empty": "hosts are empty", "free": "more hosts are empty"}
_GUESSED = "guessed: its request is not known, so amounts, traits and aggregates are kept"


def summary(plan: Mapping[str, Any]) -> str:
    """Return what a plan achieves, and how far from the best it may be, in a sentence or two."""
    moves, bound = len(plan["moves"]), plan["bound"]
    if plan["goal"] == "defragment":
        shown = ", ".join(
            f"{each['after']} of {each['before']} {name} are stranded"
            if each["before"]
            else f"no {name} is stranded"
            for name, each in plan["stranded"].items()
        )
    else:
        shown = f"{plan['achieved']} of {plan['wanted']} {_OF[plan['goal']]}"
    if moves:
        shown += f" after {moves} {'move' if moves == 1 else 'moves'}"
    if not plan["reached"]:
        return f"{shown}; {_out_of_reach(plan)}"
    if moves and bound["moves"] >= moves:
        how = {"sums": "sums show", "search": "all with fewer were tried"}[bound["by"]]
        shown += f"; no plan has fewer: {how}"
    elif moves and bound["moves"]:
        shown += f"; {bound['moves']} at least are needed, whether so few do is not known"
    return shown


def _out_of_reach(plan: Mapping[str, Any]) -> str:
    """Return why a plan does not reach its goal; plans that older releases wrote have no `why`."""
    if not plan["complete"]:
        return f"more may be possible: {plan.get('why') or 'the time was up before all was tried'}"
    impossible = plan["bound"]["by"] == "impossible"
    certain = "no number of moves does it" if impossible else "no plan within the limits does it"
    return f"{certain}: {plan['why']}" if plan.get("why") else certain


def name_mover(move: Mapping[str, Any]) -> str:
    """Return the name of the pod that is moved or stays, or the uuid of another consumer."""
    pod = move.get("pod")
    return str(move["consumer"]) if pod is None else f"{pod['namespace']}/{pod['name']}"


def list_moves(plan: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any], str, str, str]]:
    """Yield (number, move, name of the consumer, of the host before, of the host after) for each move."""
    hosts = {host["uuid"]: host["name"] for host in plan.get("hosts", ())}
    for at, move in enumerate(plan["moves"], start=1):
        before, after = move["from_host"], move["to_host"]
        yield at, move, name_mover(move), hosts.get(before) or before, hosts.get(after) or after


def drawn(plan: Mapping[str, Any], stdout: TextIO) -> Iterator[str]:
    """Yield the lines of a plan, in characters that the output can take."""
    yield summary(plan)
    for at, move, consumer, before, after in list_moves(plan):
        evicted = ", by eviction" if move["by"] == "eviction" else ""
        where = f"{before} -> {after}"
        if before == after:
            where = f"{before}, other {'CPUs' if move['kind'] == 'pod' else 'providers'} of the same host"
        yield f"{at:>4}  {consumer}  {where}  ({move['kind']}{evicted})"
    if any(move["kind"] == "guessed" for move in plan["moves"]):
        yield _GUESSED
    for each in plan["left"]:
        yield f"stays {name_mover(each)}: {each['why']}"
    for host in plan["hosts"]:
        yield ""
        consumers = f"{host['consumers_before']} -> {host['consumers_after']} consumers"
        yield f"{host['name'] or host['uuid']}: {consumers}"
        changed = {name: use for name, use in host["classes"].items() if use["before"] != use["after"]}
        width = max((len(name) for name in changed), default=0)
        for name, use in changed.items():
            before, after = (bar(use[moment], use["capacity"], stdout) for moment in ("before", "after"))
            amounts = f"{use['before']} -> {use['after']} of {use['capacity']}"
            yield f"  {name:{width}}  {before}  {after}  {amounts}"
