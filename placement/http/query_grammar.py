"""The parameters of searches for candidates. Source: placement-api.md, "Query grammar"."""

from collections.abc import Iterator

from placement.engine.domain.groups import Grammar, SplitRule
from placement.http.microversions import Feature, Microversion
from placement.http.operations import POLICIES, Parameter

NUMERIC_SUFFIX = "([1-9][0-9]*)"
STRING_SUFFIX = "([a-zA-Z0-9_-]{1,64})"
OF_GROUPS = (
    Parameter("resources", "Amounts, `VCPU:2,MEMORY_MB:512`.", since=Feature.CANDIDATES),
    Parameter(
        "required",
        "Traits, `!` before forbidden ones, `in:` before some of which one is enough.",
        since=Feature.CANDIDATES_TRAITS,
        repeated=Feature.ANY_OF_TRAITS,
    ),
    Parameter(
        "member_of",
        "An aggregate, `in:` and several, or `!` and what is forbidden.",
        since=Feature.CANDIDATES_BY_AGGREGATE,
        repeated=Feature.REPEATED_MEMBER_OF,
    ),
    Parameter("in_tree", "The uuid of a provider of the tree.", since=Feature.CANDIDATES_IN_TREE),
)
OF_ALL = (
    Parameter(
        "limit", "Candidates at most.", {"type": "integer", "minimum": 1}, since=Feature.CANDIDATES_LIMIT
    ),
    Parameter(
        "group_policy",
        "Whether groups with suffixes may share a provider.",
        {"type": "string", "enum": list(POLICIES)},
        since=Feature.GRANULAR_GROUPS,
    ),
    Parameter("root_required", "Traits of the root, `!` before forbidden ones.", since=Feature.ROOT_REQUIRED),
    Parameter(
        "same_subtree",
        "Suffixes of groups that one provider has at or below it, by commas.",
        since=Feature.SAME_SUBTREE,
        repeated=True,
    ),
)


def _suffixed(name: str, suffix: str, said: str, since: Feature, until: Feature | None = None) -> Parameter:
    """Return a parameter for names that end with the suffix of a group: an object of parameters."""
    pattern = f"^{name}{suffix}$"
    schema = {
        "type": "object",
        "patternProperties": {pattern: {"type": "string"}},
        "additionalProperties": False,
    }
    return Parameter(f"{name}{{S}}", said, schema, since=since, until=until, explode=True)


def _of_suffixed_groups() -> Iterator[Parameter]:
    for known in OF_GROUPS:
        assert known.since is not None
        said = f"The same of the group with the suffix S. {known.said}"
        since = max(known.since, Feature.GRANULAR_GROUPS, key=lambda feature: feature.value)
        yield _suffixed(known.name, NUMERIC_SUFFIX, said, since, Feature.STRING_SUFFIXES)
        yield _suffixed(known.name, STRING_SUFFIX, said, Feature.STRING_SUFFIXES)


PARAMETERS = (*OF_GROUPS, *_of_suffixed_groups(), *OF_ALL)
# The parameters that our own search has beside these, except for splits.
OWN = (
    Parameter("order_by", "The name of an order, or strategies as JSON."),
    Parameter("cluster", "The only cluster to look in."),
    Parameter("prefer", "Traits or aggregates, by commas, with `!` and `:weight`.", repeated=True),
    Parameter("explain", "1: why something fits, or nothing.", {"type": "string", "enum": ["0", "1"]}),
)
SPLITS = (
    _suffixed(
        "split",
        STRING_SUFFIX,
        "Classes whose amounts may come from several providers, of the group with the suffix S.",
        Feature.STRING_SUFFIXES,
    ),
    _suffixed("split_rule", STRING_SUFFIX, f"How: one of {', '.join(SplitRule)}.", Feature.STRING_SUFFIXES),
)
WORLD = Parameter("world", "What is to be different, as JSON; nothing is written.")
EXTENDED = (*PARAMETERS, *SPLITS, *OWN)


def grammar_of(version: Microversion) -> Grammar:
    """Return the forms of values that a version understands."""
    return Grammar(
        forbidden_traits=version.offers(Feature.FORBIDDEN_TRAITS),
        any_of_traits=version.offers(Feature.ANY_OF_TRAITS),
        repeated_required=version.offers(Feature.ANY_OF_TRAITS),
        repeated_member_of=version.offers(Feature.REPEATED_MEMBER_OF),
        forbidden_aggregates=version.offers(Feature.FORBIDDEN_AGGREGATES),
    )
