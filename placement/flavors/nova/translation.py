"""A nova flavor and image properties, translated to a Placement query and to the guest's CPU layout.

    input checks -> extra spec rules (strict only) -> memory encryption -> CPU plan -> guest nodes
      -> platform traits -> request -> query string

Every step adds what it finds wrong to one list and goes on, so that a caller learns of all problems at once.
The order of the steps is the order in which the rules let a problem decide the outcome.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from urllib.parse import urlencode

from placement.common.microversions import Feature
from placement.engine.domain.groups import CandidateQuery, RequestGroup, SplitRule
from placement.engine.domain.identifiers import meant, near
from placement.flavors.nova import cpu_plan
from placement.flavors.nova.cpu_plan import DEDICATED, PINNED, CpuPlan, plan_cpus
from placement.flavors.nova.extra_specs import (
    BASE,
    DISK_GB,
    FORBIDDEN,
    GROUP_KEY,
    GROUP_POLICIES,
    MEMORY_MB,
    MODEL_TRAITS,
    PCI_AFFINITIES,
    PCPU,
    REQUIRED,
    STANDARD_CLASSES,
    TPM_MODEL_TRAITS,
    TPM_VERSION_TRAITS,
    VCPU,
    ExplicitRequests,
    FlavorGroup,
    Groups,
    check_groups,
    check_trait_conflicts,
    custom_class,
    image_traits,
    is_entry,
    is_well_formed_class,
    memory_encryption,
    merged,
    platform_traits,
    read_extra_specs,
    stripped,
    suggestible,
)
from placement.flavors.nova.flavor import (
    GRANULAR,
    Flavor,
    FlavorProblem,
    ImageProperties,
    Options,
    Problems,
    check_input,
    integer,
    is_boolean,
    read_document,
    shown,
)
from placement.flavors.nova.guest_nodes import (
    CELL_SUFFIX,
    PER_CELL,
    Cell,
    cell_groups,
    cell_totals,
    check_no_override,
    dedicated_cpus,
    guest_nodes,
    split_cells,
    without_cells,
)

# The request, put together from everything a flavor and an image ask for.
#
# explicit entries + image traits + CPU plan   what is asked for by name
#   -> defaults                                VCPU, MEMORY_MB, DISK_GB where no group mentions them
#   -> additions                               memory encryption, platform traits, persistent memory
#   -> zero stripping, trait conflicts
#   -> granular form                           only with numa=granular and guest cells
#   -> checks Placement would make


@dataclass(frozen=True, slots=True)
class Request:
    """The parts of one query: groups by suffix, policy, traits of the root, suffixes tied together."""

    groups: Groups
    group_policy: str | None
    root_required: tuple[str, ...] = ()
    same_subtree: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class CpuShare:
    """The share of the CPU plan: its part of the base group, the emulator's CPU (0 or 1), the cells.

    `cell_count` is 0 without cells; `cells` are None while a problem keeps their split unknown.
    """

    request: FlavorGroup
    emulator_cpus: int
    cell_count: int
    cells: Sequence[Cell] | None


@dataclass(frozen=True, slots=True)
class Demand:
    """All that is asked for apart from CPUs: the flavor, its explicit entries, image traits, additions."""

    flavor: Flavor
    explicit: ExplicitRequests
    image_traits: FlavorGroup
    additions: FlavorGroup
    options: Options


def build_request(demand: Demand, cpus: CpuShare, problems: Problems) -> Request:
    """Return the query for this demand; adds a problem for each thing that cannot be asked.

    Source: nova-flavors.md, "Zero stripping", "NUMA cells as request groups", "A device tied to a cell".
    """
    groups = asked_groups(demand, cpus)
    policy = demand.explicit.group_policy
    root_required: tuple[str, ...] = ()
    check_trait_conflicts(groups, problems)
    if demand.options.numa == GRANULAR and cpus.cell_count:
        totals = {MEMORY_MB: demand.flavor.memory_mb}
        if cpus.cells is not None:
            totals = cell_totals(cpus.cells, cpus.emulator_cpus)
        check_no_override(groups, totals, problems)
        if cpus.cell_count > 1 and policy == "none":
            problems.add(
                "group_policy_conflict",
                f"group_policy: none, but {cpus.cell_count} guest NUMA cells need nodes of their own",
            )
        policy = "isolate" if cpus.cell_count > 1 else policy
        if cpus.cells is not None:
            base, root_required = without_cells(groups.get(BASE, FlavorGroup()))
            cells = cell_groups(cpus.cells, cpus.emulator_cpus)
            groups = stripped({**groups, BASE: base, **cells})
    check_groups(groups, policy, problems)
    # While a problem keeps the cells unknown, ties to them cannot be checked.
    if cpus.cells is None and len(problems):
        return Request(groups, policy, root_required)
    ties: list[tuple[str, ...]] = []
    for suffix, cell in sorted(demand.options.device_cells.items()):
        cell_suffix = f"{CELL_SUFFIX}{cell}"
        if suffix == BASE or suffix not in groups or cell_suffix not in groups:
            fault = f"there is no such group, or no group of guest NUMA cell {cell}"
            problems.add("options_invalid", f"options.device_cells: {suffix}: {fault}")
        ties.append((suffix, cell_suffix))
    return Request(groups, policy, root_required, tuple(ties))


def asked_groups(demand: Demand, cpus: CpuShare) -> dict[str, FlavorGroup]:
    """Return all that is asked for, with the totals of the cells in the base group.

    The flavor's own amounts come in where no group mentions their class, not even with 0.
    Source: nova-flavors.md, "Default amounts".
    """
    flavor = demand.flavor
    named = merged((demand.explicit.base, demand.image_traits, cpus.request))
    groups = {**demand.explicit.groups, BASE: named}
    mentioned = {name for group in groups.values() for name in group.resources}
    defaults: dict[str, int] = {}
    if not mentioned & {VCPU, PCPU}:
        defaults[VCPU] = flavor.vcpus
    if MEMORY_MB not in mentioned:
        defaults[MEMORY_MB] = flavor.memory_mb
    if DISK_GB not in mentioned:
        root_gb = 0 if demand.options.boot_from_volume else flavor.root_gb
        # Swap is in MiB and a provider counts whole GiB, so it is rounded up.
        defaults[DISK_GB] = root_gb + flavor.ephemeral_gb + -(-flavor.swap_mb // 1024)
    groups[BASE] = merged((named, FlavorGroup(defaults), demand.additions))
    return stripped(groups)


# The query string of `GET /allocation_candidates`, and the lowest microversion that understands it.


_PLAIN_NUMBER = re.compile(r"[1-9][0-9]*")


def query_string(request: Request, limit: int | None) -> str:
    """Return the form-encoded query: pairs sorted as text, entries of each value sorted as text.

    Source: nova-flavors.md, "The query string".
    """
    pairs = [("same_subtree", ",".join(suffixes)) for suffixes in request.same_subtree]
    if limit is not None:
        pairs.append(("limit", str(limit)))
    if request.group_policy is not None:
        pairs.append(("group_policy", request.group_policy))
    if request.root_required:
        pairs.append(("root_required", ",".join(request.root_required)))
    for suffix, group in request.groups.items():
        amounts = sorted(f"{name}:{amount}" for name, amount in group.resources.items())
        pairs.append((f"resources{suffix}", ",".join(amounts)))
        if group.traits:
            pairs.append((f"required{suffix}", ",".join(group.traits)))
    return urlencode(sorted(pairs))


def minimum_microversion(request: Request, limit: int | None) -> str:
    """Return the lowest microversion, such as `1.25`, that takes every parameter of the query.

    Source: placement-api.md, "Query grammar".
    """
    groups = request.groups.values()
    suffixes = [suffix for suffix in request.groups if suffix != BASE]
    features = (
        (Feature.CANDIDATES, True),
        (Feature.CANDIDATES_LIMIT, limit is not None),
        (Feature.CANDIDATES_TRAITS, any(group.required for group in groups)),
        (Feature.FORBIDDEN_TRAITS, any(group.forbidden for group in groups)),
        (Feature.GRANULAR_GROUPS, bool(suffixes) or request.group_policy is not None),
        (Feature.STRING_SUFFIXES, not all(map(_PLAIN_NUMBER.fullmatch, suffixes))),
        (Feature.ROOT_REQUIRED, bool(request.root_required)),
        (Feature.SAME_SUBTREE, bool(request.same_subtree)),
    )
    return str(max(feature.value for feature, used in features if used))


# What a flavor asks of core trees: each guest cell's memory of one provider, dedicated CPUs from below it.
#
# Nova knows hosts that give all dedicated CPUs themselves, and checks cells and siblings there afterwards.
# Where each core is a provider, no provider gives more than a core, and nothing is checked afterwards.


EMULATOR_SUFFIX = f"{CELL_SUFFIX}_emulator"
_RULES: Mapping[str | None, SplitRule] = {
    cpu_plan.REQUIRE: SplitRule.REQUIRE,
    cpu_plan.ISOLATE: SplitRule.ISOLATE,
}


def core_tree_query(asked: Request, cpus: CpuShare, threads: str | None) -> CandidateQuery | None:
    """Return the query for core trees, or None if it does not differ from the one for other hosts.

    `asked` holds totals in its base group, without the traits of a thread policy key, and what device groups
    are tied to. The answer is None for guests without cells, too, and where amounts or suffixes of the flavor
    leave no room for cells.
    Source: nova-flavors.md, "Core trees".
    """
    cells = _cells(asked.groups, cpus)
    if not cells or any(suffix.startswith(CELL_SUFFIX) for suffix in asked.groups):
        return None
    base, root_traits = without_cells(asked.groups[BASE])
    groups = []
    for suffix, group in stripped({**asked.groups, BASE: base}).items():
        required = tuple(frozenset((trait,)) for trait in sorted(group.required))
        groups.append(RequestGroup(suffix, group.resources, required=required, forbidden=group.forbidden))
    rule = _RULES.get(threads, SplitRule.PACK)
    # The emulator's CPU would upset pairs of the first cell.
    apart = cpus.emulator_cpus if rule is SplitRule.REQUIRE else 0
    for number, (suffix, amounts) in enumerate(cells.items()):
        whole = {name: amount for name, amount in amounts.items() if name != PCPU}
        dedicated = amounts.get(PCPU, 0) - (0 if number else apart)
        split = {PCPU: dedicated} if dedicated else {}
        groups.append(RequestGroup(suffix, {**whole, **split}, split=frozenset(split), split_rule=rule))
    if apart:
        groups.append(RequestGroup(EMULATOR_SUFFIX, {PCPU: apart}, split=frozenset((PCPU,))))
    ties = [(f"{CELL_SUFFIX}0", EMULATOR_SUFFIX)] if apart else []
    return CandidateQuery(
        groups=tuple(groups),
        # Each guest cell is on a node of its own.
        isolate=asked.group_policy == "isolate" or len(cells) > 1,
        same_subtree=tuple(map(frozenset, (*asked.same_subtree, *ties))),
        root_required=frozenset(name for name in root_traits if not name.startswith("!")),
        root_forbidden=frozenset(name[1:] for name in root_traits if name.startswith("!")),
    )


def _cells(groups: Groups, cpus: CpuShare) -> dict[str, Mapping[str, int]]:
    """Return what each cell asks for by suffix, the emulator's CPU included; empty if that is unknown.

    A single cell is the base group, whatever its amounts; amounts of several must be the flavor's own.
    """
    if not cpus.cells or BASE not in groups:
        return {}
    cells: dict[str, Mapping[str, int]]
    if len(cpus.cells) == 1:
        amounts = groups[BASE].resources
        cells = {f"{CELL_SUFFIX}0": {name: amounts[name] for name in PER_CELL if name in amounts}}
    else:
        overrides = Problems()
        check_no_override(groups, cell_totals(cpus.cells, cpus.emulator_cpus), overrides)
        if len(overrides):
            return {}
        asked = cell_groups(cpus.cells, cpus.emulator_cpus)
        cells = {suffix: group.resources for suffix, group in asked.items()}
    # A cell that has nothing beside dedicated CPUs could get these from anywhere in a tree.
    return cells if all(amounts.keys() - {PCPU} for amounts in cells.values()) else {}


# `hw:pmem`: persistent memory namespaces by label.


KEY = "hw:pmem"


def persistent_memory(extra_specs: Mapping[str, str]) -> FlavorGroup:
    """Return one CUSTOM_PMEM_NAMESPACE_<LABEL> for each time a label is listed; empty labels do not count.

    Source: nova-flavors.md, "Optional additions".
    """
    labels = (label.strip() for label in extra_specs.get(KEY, "").split(","))
    return FlavorGroup(Counter(custom_class(f"PMEM_NAMESPACE_{label}") for label in labels if label))


# Strict mode: what nova's own extra spec validation would refuse, one extra spec at a time.


@dataclass(frozen=True, slots=True)
class _Rule:
    expects: str
    accepts: Callable[[str], bool]


def _one_of(*values: str) -> _Rule:
    return _Rule(f"one of {', '.join(values)}", values.__contains__)


def _whole_number(least: int, most: int | None = None) -> _Rule:
    def accepts(text: str) -> bool:
        number = integer(text)
        return number is not None and number >= least and (most is None or number <= most)

    return _Rule(f"a whole number from {least}" + ("" if most is None else f" to {most}"), accepts)


def _pattern(expects: str, pattern: str) -> _Rule:
    compiled = re.compile(pattern)
    return _Rule(expects, lambda text: compiled.fullmatch(text) is not None)


_BOOLEAN = _Rule("a word for true or false", is_boolean)
_CPU_SET = _pattern(
    "CPU numbers and ranges joined by single commas, without blanks",
    r"\^?[0-9]+(-[0-9]+)?(,\^?[0-9]+(-[0-9]+)?)*",
)
_TRAIT_VALUE = _one_of(REQUIRED, FORBIDDEN)
_AMOUNT = _whole_number(0)
_ANYTHING = _Rule("anything", lambda _: True)

_CHOICES = {
    "group_policy": GROUP_POLICIES,
    "hw:cpu_policy": cpu_plan.CPU_POLICIES,
    "hw:cpu_thread_policy": cpu_plan.THREAD_POLICIES,
    "hw:emulator_threads_policy": cpu_plan.EMULATOR_POLICIES,
    "os:secure_boot": ("disabled", "required"),
    "hw:pci_numa_affinity_policy": PCI_AFFINITIES,
    "hw:tpm_model": TPM_MODEL_TRAITS,
    "hw:tpm_version": TPM_VERSION_TRAITS,
    "hw:tpm_secret_security": ("user", "host", "deployment"),
    "hw:mem_encryption_model": MODEL_TRAITS,
    "hw:viommu_model": ("intel", "smmuv3", "virtio", "auto"),
    "hw:watchdog_action": ("none", "pause", "poweroff", "reset", "disabled"),
    "hw:sound_model": ("sb16", "es1370", "pcspk", "ac97", "ich6", "ich9", "usb", "virtio"),
    "hw:usb_model": (
        *("piix3-uhci", "piix4-uhci", "ehci", "ich9-ehci1", "ich9-uhci1", "ich9-uhci2", "ich9-uhci3"),
        *("vt82c686b-uhci", "pci-ohci", "nec-xhci", "qusb1", "qusb2", "qemu-xhci", "none"),
    ),
    "hw:ephemeral_encryption_format": ("plain", "luks", "luksv2"),
}
_TOPOLOGY = [f"hw:cpu_{most}{part}" for most in ("", "max_") for part in ("sockets", "cores", "threads")]
_SWITCHES = (
    *("cpu_realtime", "mem_encryption", "locked_memory", "boot_menu", "pmu", "hide_hypervisor_id"),
    *("vif_multiqueue_enabled", "virtio_packed_ring", "ephemeral_encryption"),
)
_RULES_BY_KEY: Mapping[str, _Rule] = {
    **{key: _one_of(*values) for key, values in _CHOICES.items()},
    **dict.fromkeys(("hw:cpu_dedicated_mask", "hw:cpu_realtime_mask"), _CPU_SET),
    **dict.fromkeys(("hw:numa_nodes", *_TOPOLOGY), _whole_number(1)),
    "hw:serial_port_count": _whole_number(0),
    "hw:redirected_usb_ports": _whole_number(0, 15),
    **{f"hw:{name}": _BOOLEAN for name in _SWITCHES},
    "hw:mem_page_size": _pattern(
        "small, large, any, or digits with an optional unit",
        r"small|large|any|[0-9]+([kKMGT]i?)?(b|bit|B)?",
    ),
    "hw:pmem": _pattern("letters, digits, _ and commas", r"[a-zA-Z0-9_,]+"),
    # Nova has no rule for it; its value is checked where it is used.
    "hw:maxphysaddr_mode": _ANYTHING,
}

_PER_CELL_RULES = (
    (re.compile(r"hw:numa_cpus\.[0-9]+"), _CPU_SET),
    (re.compile(r"hw:numa_mem\.[0-9]+"), _whole_number(1)),
)
_KNOWN = (
    *(*_RULES_BY_KEY, "hw:numa_cpus.N", "hw:numa_mem.N"),
    *(f"resources:{name}" for name in sorted(STANDARD_CLASSES)),
)
_LIKE_OURS = re.compile(r"(hw|os):|resources|trait")
# Of what has no code among the warnings.
_UNUSED = "extra_spec_ignored"
_OUR_NAMESPACES = re.compile(r"(hw|os|(resources|trait)[a-zA-Z0-9_-]{0,64}):.*", re.DOTALL)
_STRICT_TRAIT = re.compile(r"[A-Z0-9_]+")


def extra_spec_fault(key: str, text: str, known: Collection[str] = ()) -> str | None:
    """Return what is wrong with one extra spec taken on its own, or None if nothing is.

    An unknown one may be meant for one of the known. Keys of foreign namespaces and keys without a namespace
    are accepted unseen. Source: nova-flavors.md, "Strict mode".
    """
    rule = _rule(key)
    match = GROUP_KEY.fullmatch(key)
    if rule is None and match is not None:
        if match["kind"] == "resources":
            rule = _AMOUNT if is_well_formed_class(match["name"]) else None
        else:
            rule = _TRAIT_VALUE if _STRICT_TRAIT.fullmatch(match["name"]) else None
    if rule is not None:
        return None if rule.accepts(text) else f"{shown(text)} is not {rule.expects}"
    return _no_such(near(key, known, 1)) if _OUR_NAMESPACES.fullmatch(key) else None


def _rule(key: str) -> _Rule | None:
    per_cell = (rule for pattern, rule in _PER_CELL_RULES if pattern.fullmatch(key))
    return _RULES_BY_KEY.get(key) or next(per_cell, None)


def _no_such(like: Sequence[str]) -> str:
    return f"there is no such extra spec{meant(like)}"


def ignored_extra_specs(extra_specs: Mapping[str, str]) -> tuple[FlavorProblem, ...]:
    """Return why a translation ignores some, sorted: bad entries, unknown ones that look like nova's.

    Words that are no booleans are among them. Source: nova-flavors.md, "Keys", "Values of resource entries".
    """
    ignored = read_extra_specs(extra_specs, suggestible(STANDARD_CLASSES, extra_specs)).ignored
    known = suggestible(_KNOWN, extra_specs)
    for key, text in extra_specs.items():
        rule, fault = _rule(key), None
        if rule is _BOOLEAN and not rule.accepts(text):
            fault = f"{shown(text)} is not {rule.expects}, so it counts as false"
        elif rule is None and not is_entry(key):
            # Properties of images have names such as hw_cpu_policy.
            flavors = key.replace("_", ":", 1)
            if _LIKE_OURS.match(key):
                fault = _no_such(near(key, known, 1))
            elif _rule(flavors) is not None:
                fault = _no_such([flavors])
        if fault is not None:
            ignored.add(_UNUSED, f"{key}: {fault}")
    return tuple(sorted(ignored))


DEFAULT_OPTIONS = Options()


@dataclass(frozen=True, slots=True)
class Translation:
    """The answer of the service for a flavor.

    `groups` maps a suffix to what it asks for; `root_required` lists traits, forbidden ones with `!`;
    `same_subtree` lists tied suffixes. `querystring` needs `microversion` at least; `fallback_querystring`
    asks for shared CPUs where hosts do not report dedicated ones. `cpu_policy` is dedicated, mixed, shared or
    None, `thread_policy` prefer, isolate, require or None. `cells` is None for a guest without NUMA cells;
    `dedicated_cpus` is CPU set text of guest CPU ids; `extra_specs` has the extra specs of the flavor.
    `on_core_trees`: the query for hosts with cores as providers, None if that does not differ.
    """

    groups: Groups
    group_policy: str | None
    root_required: tuple[str, ...]
    same_subtree: tuple[tuple[str, ...], ...]
    querystring: str
    fallback_querystring: str | None
    microversion: str
    cpu_policy: str | None
    thread_policy: str | None
    cells: tuple[Cell, ...] | None
    dedicated_cpus: str
    extra_specs: Mapping[str, str]
    on_core_trees: CandidateQuery | None = None


def translate(
    flavor: Flavor, image: ImageProperties | None = None, options: Options = DEFAULT_OPTIONS
) -> Translation:
    """Translate, or raise FlavorRefused with every problem there is.

    Source: nova-flavors.md, "Order of checks and error codes".
    """
    image = {} if image is None else image
    problems = Problems()
    check_input(flavor, image, options, problems)
    problems.raise_if_any()
    if options.strict:
        known = suggestible(_KNOWN, flavor.extra_specs)
        for key, text in flavor.extra_specs.items():
            fault = extra_spec_fault(key, text, known)
            if fault is not None:
                problems.add("extra_spec_invalid", f"{key}: {fault}")
    encryption = memory_encryption(flavor.extra_specs, image, problems)
    explicit = read_extra_specs(flavor.extra_specs)
    traits = image_traits(image)
    plan = plan_cpus(flavor, image, explicit, traits, problems)
    pmem = persistent_memory(flavor.extra_specs)
    nodes = guest_nodes(flavor, image, pinned=plan.policy in PINNED, has_pmem=bool(pmem), problems=problems)
    additions = merged((encryption, pmem, platform_traits(flavor.extra_specs, image, problems)))
    demand = Demand(flavor, explicit, traits, additions, options)
    cells = split_cells(nodes, plan) if nodes is not None and plan.settled else None
    share = CpuShare(plan.request, plan.emulator_cpus, len(nodes or ()), cells)
    request = build_request(demand, share, problems)
    problems.raise_if_any()
    # For core trees the rule of a split says more than the traits of a thread policy key.
    amounts = replace(share, request=FlavorGroup(share.request.resources))
    totals = replace(request, groups=asked_groups(demand, amounts))
    return Translation(
        groups=request.groups,
        group_policy=request.group_policy,
        root_required=request.root_required,
        same_subtree=request.same_subtree,
        querystring=query_string(request, options.limit),
        fallback_querystring=_fallback(demand, plan, cells),
        microversion=minimum_microversion(request, options.limit),
        cpu_policy=plan.policy,
        thread_policy=plan.thread_policy,
        cells=cells,
        dedicated_cpus=dedicated_cpus(cells or ()),
        extra_specs=flavor.extra_specs,
        on_core_trees=core_tree_query(totals, share, plan.thread_policy),
    )


def _fallback(demand: Demand, plan: CpuPlan, cells: tuple[Cell, ...] | None) -> str | None:
    """Return the query as if the policy keys were not there, for hosts that do not report PCPU yet.

    It is None unless a key makes the policy dedicated, or if nothing could be asked for that way.
    Source: nova-flavors.md, "PCPU fallback".
    """
    if not (demand.options.pcpu_fallback and plan.policy == DEDICATED and plan.from_keys):
        return None
    unpinned = tuple(replace(cell, cpuset=cell.pcpuset, pcpuset=()) for cell in cells or ())
    problems = Problems()
    request = build_request(demand, CpuShare(FlavorGroup(), 0, len(unpinned), unpinned), problems)
    return None if len(problems) else query_string(request, demand.options.limit)


def translate_document(document: object) -> Translation:
    """Translate `{"flavor": {...}, "image": {...}, "options": {...}}`; image and options may be absent.

    Flavor and Options define the fields; image maps property names to texts. Raises FlavorRefused.
    """
    return translate(*read_document(document))


def translation_document(translation: Translation) -> dict[str, object]:
    """Return the answer as JSON values, empty parts of groups left out."""
    document = {
        each.name: getattr(translation, each.name)
        for each in fields(Translation)
        if each.name not in ("on_core_trees", "extra_specs")
    }
    groups = {
        suffix: {
            "resources": dict(group.resources),
            "required": sorted(group.required),
            "forbidden": sorted(group.forbidden),
        }
        for suffix, group in translation.groups.items()
    }
    document["groups"] = {
        suffix: {name: part for name, part in parts.items() if part} for suffix, parts in groups.items()
    }
    if translation.cells is not None:
        document["cells"] = [asdict(cell) for cell in translation.cells]
    ignored = ignored_extra_specs(translation.extra_specs)
    document["warnings"] = [each.code for each in ignored if each.code != _UNUSED]
    document["ignored"] = [each.message for each in ignored]
    return document
