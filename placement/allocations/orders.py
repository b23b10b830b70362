"""The setting `scoring` of a cluster: how candidates, pods and NUMA nodes are scored.

It holds one order or strategy for each use, all in one vocabulary: a name, a strategy, a list of strategies,
or a configuration of kube-scheduler.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from placement.allocations.kubernetes_resources import class_of, is_class, resource_of
from placement.common.manifest import shown
from placement.engine.domain.errors import BadRequest
from placement.engine.scoring.order import (
    DEFAULT_SCORING,
    NAMED,
    POD_SCORING,
    Order,
    Scope,
    Strategy,
    parse_order,
    parse_strategy,
)
from placement.engine.scoring.rule import ScoringRefused

# The ways to configure scores of kube-scheduler, as our strategies; resources keep their names.
#
# Accepted are: a Policy or one of its priorities, a KubeSchedulerConfiguration or one of its profiles,
# and the arguments of a single plugin. Whatever is not about resources is ignored.
# Source: scoring.md, "Parameters"; the scheduler configuration of Kubernetes 1.16 to 1.31.

_RATIO = "RequestedToCapacityRatio"
_RATIO_ARGUMENTS = "requestedToCapacityRatioArguments"
_PRIORITIES = {
    "LeastRequestedPriority": "LeastAllocated",
    "MostRequestedPriority": "MostAllocated",
    "BalancedResourceAllocation": "BalancedAllocation",
}
_PLUGINS = {
    "NodeResourcesLeastAllocated": "LeastAllocated",
    "NodeResourcesMostAllocated": "MostAllocated",
    "NodeResourcesBalancedAllocation": "BalancedAllocation",
    "RequestedToCapacityRatio": _RATIO,
}
_FIT = "NodeResourcesFit"

Object = Mapping[str, Any]


def strategies_from(document: Any) -> list[dict[str, Any]] | None:
    """Return the strategies that a document configures, None if it is none of the documents listed above.

    Raises BadRequest if it is one but scores nothing by resources.
    """
    found = _read(document) if isinstance(document, Mapping) else None
    strategies = None if found is None else list(found)
    if strategies == []:
        raise BadRequest("the scheduler configuration has no score of resources")
    return strategies


def is_policy(document: Any) -> bool:
    """Return whether a document is a Policy or one of its priorities, which score from 0 to 10."""
    return isinstance(document, Mapping) and (
        isinstance(document.get("priorities"), list)
        or _RATIO_ARGUMENTS in document
        or isinstance(document.get("argument"), Mapping)
        or document.get("name") in _PRIORITIES
    )


def policy_remarks(document: Any) -> Iterator[str]:
    """Yield one sentence for each priority and each predicate of a Policy that has no effect here.

    Source: scoring.md, "Policies".
    """
    if not isinstance(document, Mapping):
        return
    for at, priority in enumerate(_objects(document.get("priorities"))):
        if not list(_of_policy([priority])):
            name = shown(priority.get("name"))
            yield f"priorities[{at}]: {name} does not score amounts of resources; it has no effect"
    for at, predicate in enumerate(_objects(document.get("predicates"))):
        yield f"predicates[{at}]: {shown(predicate.get('name'))} has no effect: no Policy filters nodes here"


def _read(document: Object) -> Iterator[dict[str, Any]] | None:
    if isinstance(document.get("priorities"), list):
        return _of_policy(document["priorities"])
    if isinstance(document.get("profiles"), list):
        profiles = _objects(document["profiles"])
        return (strategy for profile in profiles for strategy in _of_profile(profile))
    if isinstance(document.get("pluginConfig"), list):
        return _of_profile(document)
    if _RATIO_ARGUMENTS in document:
        return _of_policy([{"argument": document}])
    if isinstance(document.get("argument"), Mapping) or document.get("name") in _PRIORITIES:
        return _of_policy([document])
    if isinstance(document.get("scoringStrategy"), Mapping):
        return iter([_of_fit(document, {})])
    kind = str(document.get("kind", "")).removesuffix("Args")
    return iter([{"type": _PLUGINS[kind], **_shared(document)}]) if kind in _PLUGINS else None


def _of_policy(priorities: list[Any]) -> Iterator[dict[str, Any]]:
    for priority in _objects(priorities):
        weight = {"weight": priority["weight"]} if "weight" in priority else {}
        arguments = priority.get("argument")
        if isinstance(arguments, Mapping) and isinstance(arguments.get(_RATIO_ARGUMENTS), Mapping):
            yield {"type": _RATIO, **_shared(arguments[_RATIO_ARGUMENTS]), **weight}
        elif priority.get("name") in _PRIORITIES:
            yield {"type": _PRIORITIES[priority["name"]], **weight}


def _of_profile(profile: Object) -> Iterator[dict[str, Any]]:
    plugins = profile.get("plugins")
    score = plugins.get("score") if isinstance(plugins, Mapping) else None
    enabled = _objects(score.get("enabled")) if isinstance(score, Mapping) else []
    weights = {str(plugin.get("name")): plugin["weight"] for plugin in enabled if "weight" in plugin}
    for plugin in _objects(profile.get("pluginConfig")):
        name, arguments = str(plugin.get("name")), plugin.get("args")
        if not isinstance(arguments, Mapping):
            continue
        weight = {"weight": weights[name]} if name in weights else {}
        if name == _FIT and isinstance(arguments.get("scoringStrategy"), Mapping):
            yield _of_fit(arguments, weight)
        elif name in _PLUGINS:
            yield {"type": _PLUGINS[name], **_shared(arguments), **weight}


def _of_fit(arguments: Object, weight: Object) -> dict[str, Any]:
    strategy = arguments["scoringStrategy"]
    ratio = strategy.get("requestedToCapacityRatio")
    shape = {"shape": ratio["shape"]} if isinstance(ratio, Mapping) and "shape" in ratio else {}
    return {"type": strategy.get("type"), **_shared(strategy), **shape, **weight}


def _shared(arguments: Object) -> dict[str, Any]:
    """Return the shape and the resources as they are."""
    return {key: arguments[key] for key in ("shape", "resources") if arguments.get(key) is not None}


def _objects(values: Any) -> list[Object]:
    return [value for value in values if isinstance(value, Mapping)] if isinstance(values, list) else []


SCORING = "scoring"
CANDIDATES = "candidates"
PODS = "pods"
NUMA = "numa"
# Former settings for one use each; they are still read.
FORMER = {PODS: "hostScoring", NUMA: "numaScoring"}
_USES = frozenset({CANDIDATES, PODS, NUMA})
# Longer texts are not cached, because bodies may hold texts of any length.
_LONGEST_KEPT = 8192

Settings = Mapping[str, Any]


def order_of(
    given: Any, where: str, name_of: Callable[[str], str] = class_of, *, stored: bool = False
) -> Order | None:
    """Return the order of a JSON value, None for none; `name_of` translates the names of resources in it.

    A `stored` value is not refused for what was accepted once. Raises BadRequest naming the field.
    """
    if not isinstance(given, str):
        return _order_of_value(given, where, name_of, stored)
    is_kept = len(given) <= _LONGEST_KEPT
    order_of_text = _order_of_text if is_kept else _order_of_text.__wrapped__
    return order_of_text(given.strip(), where, name_of, stored)


# Callers repeat a few texts.
@lru_cache(maxsize=256)
def _order_of_text(text: str, where: str, name_of: Callable[[str], str], stored: bool) -> Order | None:
    if text[:1] in ("[", "{"):
        return _order_of_value(_parsed(text, where), where, name_of, stored)
    if text and text not in NAMED:
        raise BadRequest(
            f"{where}: {text!r} is no known order; use JSON or one of {', '.join(NAMED)}",
            code="strategy_unknown",
        )
    order = NAMED.get(text)
    return None if order is None else order.with_names(name_of, where, stored=stored)


def _order_of_value(given: Any, where: str, name_of: Callable[[str], str], stored: bool) -> Order | None:
    try:
        strategies = strategies_from(given)
    except BadRequest as error:
        raise BadRequest(f"{where}: {error}") from None
    order = parse_order(given if strategies is None else strategies, where)
    return order.with_names(name_of, where, stored=stored)


def _parsed(text: str, where: str) -> Any:
    try:
        found = json.loads(text, parse_constant=_refuse_constant)
        # Escapes can spell halves of characters, which no answer could show.
        json.dumps(found, ensure_ascii=False).encode()
        return found
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{where}: Malformed JSON: {error}") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def candidates_order(settings: Settings, *, stored: bool = False) -> tuple[Order | None, bool]:
    """Return the order of candidates in a cluster, and whether its settings give one.

    Settings that are `stored` are not refused for what was accepted once. Raises BadRequest.
    """
    given, where = _given(settings, CANDIDATES)
    order = None if given is None else order_of(given, where, stored=stored)
    return order, given is not None


def order_remarks(given: Any, where: str) -> tuple[str, ...]:
    """Return one sentence for each part of an order of candidates that has no effect.

    Source: scoring.md, "Policies".
    """
    return tuple(f"{where}.{remark}" for remark in policy_remarks(_document(given)))


def scoring_remarks(settings: Settings) -> tuple[str, ...]:
    """Return one sentence for each part of a cluster's scoring settings that has no effect.

    Source: scoring.md, "Policies".
    """
    scoring = settings.get(SCORING)
    uses = {SCORING: scoring}
    if isinstance(scoring, Mapping) and scoring.keys() & _USES:
        uses = {f"{SCORING}.{use}": given for use, given in scoring.items()}
    remarks = [remark for where, given in uses.items() for remark in order_remarks(given, where)]
    if _follows_design(settings) and _is_for_all(settings) and _of_pods(settings) is None:
        remarks.append(f"{SCORING}: lists what no pod requests; it orders candidates only")
    return tuple(remarks)


def pod_scoring(settings: Settings) -> Order:
    """Return how pods are scored on nodes: the weighted sum of the strategies, of one its plain score.

    Raises BadRequest naming the field. Source: scoring.md, "Ordering", "Policies".
    """
    return _scoring_by(settings, PODS)


def numa_scoring(settings: Settings) -> Strategy:
    """Return how NUMA nodes are scored for a pod; scores are 0 to 100. Raises BadRequest naming the field."""
    (strategy,) = _scoring_by(settings, NUMA).strategies
    return strategy


def _scoring_by(settings: Settings, use: str) -> Order:
    given, where = _given(settings, use)
    former = settings.get(FORMER[use])
    if use == PODS and given is None and former is None:
        given = _of_pods(settings)
    if former is not None:
        if given is not None:
            raise ScoringRefused("strategy_invalid", FORMER[use], f"{where} is given too, and means the same")
        return Order((_former(former, FORMER[use]),)).plain
    if given is None:
        return POD_SCORING
    keeps_scale = _follows_design(settings) and is_policy(_document(given))
    order = order_of(given, where, resource_of)
    if order is None:
        raise ScoringRefused("strategy_invalid", where, "must be a strategy, or several")
    strategies = order.strategies
    if use == NUMA and len(strategies) != 1:
        raise ScoringRefused("strategy_invalid", where, "must be one strategy")
    places = [where] if len(strategies) == 1 else [f"{where}[{at}]" for at in range(len(strategies))]
    pairs = list(zip(strategies, places, strict=True))
    for strategy, place in pairs:
        for at, (name, _) in enumerate(strategy.resources):
            if is_class(name):
                field = f"{place}.resources[{at}].name"
                raise ScoringRefused("resource_invalid", field, f"{name} is nothing that pods request")
    return Order(tuple(_for_pods(each, place, keeps_scale=keeps_scale) for each, place in pairs)).plain


def _of_pods(settings: Settings) -> Any:
    """Return what a cluster says for all uses at once, if pods request all of its resources; else None.

    Source: scoring.md, "Policies".
    """
    if not _follows_design(settings) or not _is_for_all(settings):
        return None
    given = settings[SCORING]
    order = order_of(given, SCORING, resource_of)
    names = [] if order is None else [name for each in order.strategies for name, _ in each.resources]
    return given if names and not any(map(is_class, names)) else None


def _is_for_all(settings: Settings) -> bool:
    """Return whether the setting is a configuration of kube-scheduler, which says nothing about uses."""
    try:
        return strategies_from(_document(settings.get(SCORING))) is not None
    except BadRequest:
        return False


def _document(given: Any) -> Any:
    """Return a setting as a JSON value, parsed if the setting is the text of one."""
    is_json = isinstance(given, str) and given.strip()[:1] in ("[", "{")
    return _parsed(given.strip(), SCORING) if is_json else given


def _follows_design(settings: Settings) -> bool:
    return settings.get("profile", "design") == "design" and bool(settings)


def _given(settings: Settings, use: str) -> tuple[Any, str]:
    """Return what the setting says about one use, and where. Raises ScoringRefused."""
    given = settings.get(SCORING)
    if not isinstance(given, Mapping) or not given.keys() & _USES:
        # The setting was about candidates only at first.
        return (given if use == CANDIDATES else None), SCORING
    unknown = sorted(map(str, given.keys() - _USES))
    if unknown:
        raise ScoringRefused("strategy_invalid", SCORING, f"{', '.join(unknown)} is not understood")
    return given.get(use), f"{SCORING}.{use}"


def _for_pods(strategy: Strategy, where: str, *, keeps_scale: bool = False) -> Strategy:
    """Return the strategy on the scale of pods: points from 0 to 10 are multiplied by 10, as in Kubernetes.

    `keeps_scale`: the points stay, as they did in Policies.
    """
    if strategy.scope is not Scope.TREE:
        raise ScoringRefused("scope_invalid", f"{where}.scope", "pods know no scope")
    shape = strategy.shape
    return replace(strategy, shape=shape if shape is None or keeps_scale else shape.enlarged)


def _former(given: Any, where: str) -> Strategy:
    """Read a former setting: an object with a type and perhaps resources by their names in Kubernetes.

    The former rules for resources still hold: at least one, weights above 0, null for 1.
    """
    if not isinstance(given, Mapping):
        raise ScoringRefused("strategy_invalid", where, "must be an object with a type")
    resources = given.get("resources")
    if resources is None:
        strategy = replace(parse_strategy(dict(given), where), resources=DEFAULT_SCORING.resources)
        return _for_pods(strategy, where)
    if resources == []:
        raise ScoringRefused("resource_invalid", f"{where}.resources", "there must be at least one resource")
    if isinstance(resources, list):
        resources = list(resources)
        for at, entry in enumerate(resources):
            if isinstance(entry, Mapping):
                weight = entry.get("weight")
                if weight == 0:
                    field = f"{where}.resources[{at}].weight"
                    raise ScoringRefused("weight_invalid", field, "must be an integer from 1 to 100")
                resources[at] = {"name": entry.get("name"), "weight": 1 if weight is None else weight}
    return _for_pods(parse_strategy({**given, "resources": resources}, where), where)
