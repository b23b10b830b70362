"""Hypothesis strategies for forests of providers and for candidate queries on them.

Everything drawn is small on purpose: few classes, traits and aggregates, so that the parts of a query meet,
groups ask for the same thing and permutations occur; and a bound on the choices the naive enumerator has to
look at. About half of the searches have candidates.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from math import comb, prod
from typing import TypeVar

from hypothesis import assume
from hypothesis import strategies as st

from placement.engine.domain.groups import UNSUFFIXED, CandidateQuery, RequestGroup, SplitRule
from placement.engine.domain.inventories import MAX_INT, Inventory
from tests.naive import SHARING_TRAIT, NaiveProvider

RESOURCE_CLASSES = ("VCPU", "DISK_GB", "FPGA", "CUSTOM_UNIT")
TRAITS = ("HW_CPU_X86_AVX", "CUSTOM_RED", "CUSTOM_BLUE")
AGGREGATES = tuple(str(uuid.UUID(int=0xA << 120 | number)) for number in range(3))
UNKNOWN_PROVIDER = str(uuid.UUID(int=0xF << 120))
UNKNOWN_AGGREGATE = str(uuid.UUID(int=0xF << 120 | 1))

MAX_PROVIDERS = 9
MAX_TREES = 4
MAX_DEPTH = 3
MAX_GROUPS = 4
MAX_CLASSES_OF_A_GROUP = 3
MAX_CHOICES = 7000
"""At most this many ways to pick a provider for every place of a query; see `places`."""

_OLD_CONDITIONS: tuple[tuple[str, ...], ...] = (
    *((),) * 9,
    ("required",),
    ("required",),
    ("forbidden",),
    ("member_of",),
    ("required", "forbidden"),
    ("required", "member_of"),
)
_CONDITIONS = (
    *_OLD_CONDITIONS,
    ("forbidden_aggregates",),
    ("in_tree",),
    ("member_of", "forbidden_aggregates"),
    ("required", "forbidden", "forbidden_aggregates", "in_tree"),
)
"""Which conditions a group states; about half of all groups state none."""

_SUFFIXES = ("1", "2", "42", "_A", "_b-9")
_NUMBERS = ("1", "2", "3", "42")

_USUAL_OFFERS = (
    *((Inventory(total=8), 0),) * 8,
    *((Inventory(total=4), used) for used in (0, 0, 1, 3)),
    *((Inventory(total=2), used) for used in (0, 1, 3)),
    (Inventory(total=1), 0),
    (Inventory(total=4, allocation_ratio=1.3), 3),
    (Inventory(total=8, reserved=6), 0),
    (Inventory(total=4, max_unit=1), 0),
    (Inventory(total=8, max_unit=2), 1),
    (Inventory(total=8, min_unit=2), 0),
    (Inventory(total=8, step_size=2), 1),
)
"""Inventories that most small amounts fit, each with its usage."""

Offer = tuple[Inventory, int]
Forest = tuple[NaiveProvider, ...]
Search = tuple[Forest, CandidateQuery]


def places(query: CandidateQuery) -> int:
    """How often the naive enumerator picks a provider: per suffixed group and per unsuffixed class."""
    return sum(len(group.resources) if group.suffix == UNSUFFIXED else 1 for group in query.groups)


# forests


_T = TypeVar("_T")


# Hypothesis takes its time to make a strategy: those that are drawn from again and again are made once.
@cache
def one_of(choices: tuple[_T, ...]) -> st.SearchStrategy[_T]:
    """Any of the choices, the first when shrunk."""
    return st.sampled_from(choices)


@cache
def rarely(percent: int) -> st.SearchStrategy[bool]:
    """True in about so many cases of a hundred, False when shrunk."""
    return st.sampled_from(range(100)).map(lambda number: number >= 100 - percent)


@cache
@st.composite
def inventories(draw: st.DrawFn) -> Inventory:
    """Any small inventory, also one without capacity or with units that few amounts respect."""
    total = draw(st.integers(1, 8))
    return Inventory(
        total=total,
        reserved=draw(one_of((0, 0, 1, total))),
        min_unit=draw(one_of((1, 1, 2, 3))),
        max_unit=draw(one_of((MAX_INT, 1, 2, 3, 8))),
        step_size=draw(one_of((1, 1, 2, 3))),
        allocation_ratio=draw(one_of((1.0, 1.0, 0.5, 1.3, 1.5, 2.0, 0.0))),
    )


@cache
@st.composite
def offers(draw: st.DrawFn) -> Offer:
    """An inventory and its usage: nothing, part, all, or more than all, as after shrinking one in use."""
    if not draw(rarely(15)):
        return draw(one_of(_USUAL_OFFERS))
    inventory = draw(inventories())
    return inventory, draw(st.integers(0, inventory.capacity + 2))


@cache
@st.composite
def forests(draw: st.DrawFn) -> Forest:
    """One to MAX_TREES trees, parents before children, sharing providers anywhere in them."""
    providers: list[NaiveProvider] = []
    depths: dict[str, int] = {}
    for number in range(draw(st.integers(1, MAX_PROVIDERS))):
        parent = draw(_parents(providers, depths))
        provider = draw(_providers(str(uuid.UUID(int=number + 1)), parent))
        depths[provider.uuid] = 0 if parent is None else depths[parent] + 1
        providers.append(provider)
    return tuple(providers)


def _parents(providers: Sequence[NaiveProvider], depths: Mapping[str, int]) -> st.SearchStrategy[str | None]:
    inner = [provider.uuid for provider in providers if depths[provider.uuid] < MAX_DEPTH]
    roots = sum(provider.parent is None for provider in providers)
    if not inner:
        return st.none()
    new_root = [None] * (len(inner) // 2 + 1) if roots < MAX_TREES else []
    return st.sampled_from([*inner, *new_root])


@st.composite
def _providers(draw: st.DrawFn, name: str, parent: str | None) -> NaiveProvider:
    offered = {resource_class: draw(offers()) for resource_class in draw(one_of(_OFFERED_CLASSES))}
    shared = draw(one_of((False, False, False, True)))
    return NaiveProvider(
        uuid=name,
        parent=parent,
        inventories={resource_class: inventory for resource_class, (inventory, _) in offered.items()},
        used={resource_class: used for resource_class, (_, used) in offered.items() if used},
        traits=frozenset((*draw(one_of(_subsets(TRAITS))), *([SHARING_TRAIT] if shared else []))),
        aggregates=frozenset(draw(one_of(_subsets(AGGREGATES)))),
    )


@cache
def _subsets(names: tuple[str, ...], least: int = 0) -> tuple[tuple[str, ...], ...]:
    """All of at least that size, the smallest first."""
    return tuple(chosen for size in range(least, len(names) + 1) for chosen in combinations(names, size))


_OFFERED_CLASSES = (*_subsets(RESOURCE_CLASSES), *_subsets(RESOURCE_CLASSES, least=2))
"""Any set of classes, the larger ones twice as often, for queries to find something."""


# queries


@st.composite
def searches(draw: st.DrawFn, *, one_provider_per_tree: bool = False) -> Search:
    """A forest and a query on it that every rule about combinations of parameters accepts.

    With `one_provider_per_tree` the query uses only what microversion 1.28 understands.
    """
    forest = draw(forests())
    return forest, draw(queries(forest, one_provider_per_tree=one_provider_per_tree))


@st.composite
def queries(draw: st.DrawFn, forest: Forest, *, one_provider_per_tree: bool = False) -> CandidateQuery:
    """A valid query whose places keep within MAX_CHOICES for the forest."""
    modern = not one_provider_per_tree
    budget = _allowed_places(len(forest))
    groups: list[RequestGroup] = []
    if draw(st.booleans()):
        groups.append(draw(_groups(forest, UNSUFFIXED, min(budget, MAX_CLASSES_OF_A_GROUP), modern)))
        budget -= len(groups[0].resources)
    suffixes = draw(_suffixes(min(budget, MAX_GROUPS - len(groups)), bool(groups), modern))
    for suffix in suffixes:
        groups.append(draw(_suffixed(forest, suffix, groups, modern)))
    root_required, root_forbidden = draw(_root_traits()) if modern else (frozenset(), frozenset())
    return CandidateQuery(
        groups=tuple(draw(st.permutations(groups))),
        isolate=draw(st.booleans()),
        same_subtree=draw(_subtrees(groups)) if modern and suffixes else (),
        root_required=root_required,
        root_forbidden=root_forbidden,
        one_provider_per_tree=one_provider_per_tree,
    )


def _allowed_places(providers: int) -> int:
    most = MAX_CLASSES_OF_A_GROUP + MAX_GROUPS - 1
    return max(number for number in range(1, most + 1) if providers**number <= MAX_CHOICES)


def _suffixes(most: int, optional: bool, modern: bool) -> st.SearchStrategy[list[str]]:
    known = one_of(_SUFFIXES if modern else _NUMBERS)
    return st.lists(known, unique=True, min_size=0 if optional else 1, max_size=most)


@st.composite
def _suffixed(
    draw: st.DrawFn, forest: Forest, suffix: str, before: Sequence[RequestGroup], modern: bool
) -> RequestGroup:
    """A group like an earlier suffixed one, a new one with resources, or a resource-less one."""
    twins = [group for group in before if group.suffix != UNSUFFIXED]
    if draw(st.booleans()) and twins:
        return replace(draw(st.sampled_from(twins)), suffix=suffix)
    if before and modern and draw(rarely(35)):
        return draw(_resourceless(forest, suffix))
    return draw(_groups(forest, suffix, draw(one_of((1, 1, 2))), modern))


@st.composite
def _groups(draw: st.DrawFn, forest: Forest, suffix: str, most_classes: int, modern: bool) -> RequestGroup:
    """A group with resources, mostly of classes that somebody offers."""
    offered = sorted({name for provider in forest for name in provider.inventories})
    pool = offered if offered and not draw(rarely(5)) else RESOURCE_CLASSES
    names = draw(st.lists(st.sampled_from(pool), unique=True, min_size=1, max_size=most_classes))
    return replace(
        draw(_conditions(forest, suffix, modern)),
        resources={name: draw(one_of((1, 1, 1, 1, 1, 1, 2, 2, 3, 4))) for name in names},
    )


def _resourceless(forest: Forest, suffix: str) -> st.SearchStrategy[RequestGroup]:
    """A group without resources; it has to have some other parameter to exist at all."""
    return _conditions(forest, suffix, modern=True).map(
        lambda group: (
            replace(group, required=(frozenset((TRAITS[0],)),)) if group == RequestGroup(suffix) else group
        )
    )


@st.composite
def _conditions(draw: st.DrawFn, forest: Forest, suffix: str, modern: bool) -> RequestGroup:
    """Traits, aggregates and tree of a group; resources are not chosen yet."""
    kinds = draw(one_of(_CONDITIONS if modern else _OLD_CONDITIONS))
    forbidden = draw(_some(TRAITS, 1)) if "forbidden" in kinds else frozenset()
    required = draw(_conjunction(TRAITS, any_of=modern)) if "required" in kinds else ()
    aggregates = (*AGGREGATES, *AGGREGATES, UNKNOWN_AGGREGATE)
    named = (*(provider.uuid for provider in forest), UNKNOWN_PROVIDER)
    return RequestGroup(
        suffix,
        required=tuple(wanted for wanted in required if not wanted <= forbidden),
        forbidden=forbidden,
        member_of=draw(_conjunction(aggregates, any_of=True)) if "member_of" in kinds else (),
        forbidden_aggregates=draw(_some(aggregates, 2)) if "forbidden_aggregates" in kinds else frozenset(),
        in_tree=draw(one_of(named)) if "in_tree" in kinds else None,
    )


@cache
def _some(names: tuple[str, ...], most: int) -> st.SearchStrategy[frozenset[str]]:
    return st.frozensets(one_of(names), min_size=1, max_size=most)


@cache
def _conjunction(names: tuple[str, ...], *, any_of: bool) -> st.SearchStrategy[tuple[frozenset[str], ...]]:
    """One or two different any-of sets, single names first."""
    sets = st.lists(_some(names, 2 if any_of else 1), unique=True, min_size=1, max_size=2)
    return sets.map(lambda wanted: tuple(sorted(wanted, key=len)))


@cache
@st.composite
def _root_traits(draw: st.DrawFn) -> tuple[frozenset[str], frozenset[str]]:
    """Traits the root must have and must not have, mostly none."""
    required = draw(_some(TRAITS, 2)) if draw(rarely(10)) else frozenset()
    forbidden = draw(_some(TRAITS, 2)) if draw(rarely(10)) else frozenset()
    return required, forbidden - required


@st.composite
def _subtrees(draw: st.DrawFn, groups: Sequence[RequestGroup]) -> tuple[frozenset[str], ...]:
    """Up to two constraints, and one more for the resource-less groups that they leave out."""
    suffixes = [group.suffix for group in groups if group.suffix != UNSUFFIXED]
    constraint = st.frozensets(st.sampled_from(suffixes), min_size=1)
    constraints = draw(st.lists(constraint, max_size=2)) if draw(rarely(40)) else []
    named = frozenset().union(*constraints)
    left = {group.suffix for group in groups if not group.resources} - named
    if left:
        constraints.append(draw(constraint) | left)
    return tuple(constraints)


# queries that split amounts

_MOST_COMBINATIONS = 20_000


@st.composite
def split_searches(draw: st.DrawFn) -> Search:
    """A search of which some suffixed groups split some classes; half of the forests have cores."""
    forest, query = draw(st.one_of(searches(), _core_searches(), _core_searches()))
    able = [group.suffix for group in query.groups if group.suffix != UNSUFFIXED and group.resources]
    assume(able)
    splitting = draw(one_of((*_subsets(tuple(able), least=1), *_subsets(tuple(able), least=2) * 2)))
    groups = [draw(_splitting(group)) if group.suffix in splitting else group for group in query.groups]
    whole = {group.suffix for group in groups if not group.split or set(group.resources) - group.split}
    query = replace(
        query,
        groups=tuple(groups),
        same_subtree=tuple(names for names in query.same_subtree if names & whole),
    )
    assume(prod(_ways(group, len(forest)) for group in groups) <= _MOST_COMBINATIONS)
    return forest, query


def _ways(group: RequestGroup, providers: int) -> int:
    """At most so many ways in which the naive enumerator serves the group."""
    if group.suffix == UNSUFFIXED:
        return providers ** len(group.resources)
    ways = [comb(providers + group.resources[name] - 1, group.resources[name]) for name in group.split]
    return prod(ways) * (providers if set(group.resources) - group.split or not group.resources else 1)


def _splitting(group: RequestGroup) -> st.SearchStrategy[RequestGroup]:
    return st.builds(
        lambda names, rule: replace(group, split=frozenset(names), split_rule=rule),
        one_of(_subsets(tuple(sorted(group.resources)), least=1)),
        st.sampled_from(SplitRule),
    )


@st.composite
def _core_searches(draw: st.DrawFn) -> Search:
    """A host, its sockets and their cores; groups for sockets and groups for what is on their cores."""
    host, *sockets = (str(uuid.UUID(int=number + 1)) for number in range(draw(st.integers(2, 3))))
    providers = [NaiveProvider(host, None, {"DISK_GB": Inventory(total=8)})]
    providers += [NaiveProvider(socket, host, {"VCPU": Inventory(total=4)}) for socket in sockets]
    for number in range(draw(st.integers(2, 6))):
        total, used = draw(one_of(((2, 0), (2, 0), (2, 0), (2, 1), (2, 2), (1, 0), (4, 0), (4, 1), (3, 0))))
        unit = draw(one_of((1, 1, 1, 2)))
        inventory = Inventory(total=total, min_unit=unit, step_size=draw(one_of((1, unit))))
        parent = draw(one_of((*sockets, *sockets, host)))
        providers.append(
            NaiveProvider(
                str(uuid.UUID(int=0x100 + number)),
                parent,
                {"FPGA": inventory},
                {"FPGA": used} if used else {},
            )
        )
    kinds = draw(
        st.lists(
            one_of(("socket", "cores", "cores", "both", "core")), min_size=draw(one_of((1, 2, 3))), max_size=3
        )
    )
    groups = [draw(_core_group(f"_{number}{kind}", kind)) for number, kind in enumerate(kinds)]
    named = st.frozensets(st.sampled_from([group.suffix for group in groups]), min_size=1)
    subtrees = draw(st.lists(named, max_size=2))
    return tuple(providers), CandidateQuery(tuple(groups), draw(rarely(40)), tuple(subtrees))


def _core_group(suffix: str, kind: str) -> st.SearchStrategy[RequestGroup]:
    amount = one_of((1, 2, 2, 3, 4, 5))
    vcpu = st.just({"VCPU": 1}) if kind in ("socket", "both") else st.just({})
    fpga = st.builds(lambda most: {"FPGA": most}, amount) if kind != "socket" else st.just({})
    return st.builds(lambda a, b: RequestGroup(suffix, resources={**a, **b}), vcpu, fpga)
