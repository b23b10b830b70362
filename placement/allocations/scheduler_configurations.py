"""The ways to configure scores of kube-scheduler, as our strategies; resources keep their names.

Accepted are: a Policy or one of its priorities, a KubeSchedulerConfiguration or one of its profiles,
and the arguments of a single plugin. Whatever is not about resources is ignored.
Source: scoring.md, "Parameters"; the scheduler configuration of Kubernetes 1.16 to 1.31.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from placement.common.manifest import shown
from placement.engine.domain.errors import BadRequest

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

ConfigObject = Mapping[str, Any]


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


def _read(document: ConfigObject) -> Iterator[dict[str, Any]] | None:
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


def _of_profile(profile: ConfigObject) -> Iterator[dict[str, Any]]:
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


def _of_fit(arguments: ConfigObject, weight: ConfigObject) -> dict[str, Any]:
    strategy = arguments["scoringStrategy"]
    ratio = strategy.get("requestedToCapacityRatio")
    shape = {"shape": ratio["shape"]} if isinstance(ratio, Mapping) and "shape" in ratio else {}
    return {"type": strategy.get("type"), **_shared(strategy), **shape, **weight}


def _shared(arguments: ConfigObject) -> dict[str, Any]:
    """Return the shape and the resources as they are."""
    return {key: arguments[key] for key in ("shape", "resources") if arguments.get(key) is not None}


def _objects(values: Any) -> list[ConfigObject]:
    return [value for value in values if isinstance(value, Mapping)] if isinstance(values, list) else []
