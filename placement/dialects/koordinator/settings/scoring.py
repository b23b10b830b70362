"""How candidates, pods and NUMA nodes are scored, as a cluster is told: the setting `scoring`.

It holds one order or strategy for each use, all in one vocabulary: a name, a strategy, a list of strategies,
or what kube-scheduler is configured with.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from placement.dialects.koordinator.resources import class_of, is_class, resource_of
from placement.dialects.koordinator.settings.scheduler_scores import (
    is_policy,
    policy_remarks,
    strategies_from,
)
from placement.domain.errors import BadRequest
from placement.scoring.order import NAMED, POD_SCORING, Order, parse_order
from placement.scoring.refusal import ScoringRefused
from placement.scoring.strategy import DEFAULT_SCORING, Scope, Strategy, parse_strategy

SCORING = "scoring"
CANDIDATES = "candidates"
PODS = "pods"
NUMA = "numa"
# Former settings for one use each; they are still read.
FORMER = {PODS: "hostScoring", NUMA: "numaScoring"}
_USES = frozenset({CANDIDATES, PODS, NUMA})
# Bodies may hold texts of any length.
_LONGEST_KEPT = 8192

Settings = Mapping[str, Any]


def order_of(
    given: Any, where: str, name_of: Callable[[str], str] = class_of, *, stored: bool = False
) -> Order | None:
    """The order of a JSON value, None for none; `name_of` says what resources are called in it.

    A `stored` one is not refused for what was taken once. Raises BadRequest naming the field.
    """
    if not isinstance(given, str):
        return _order_of_value(given, where, name_of, stored)
    kept = len(given) <= _LONGEST_KEPT
    return (_order_of_text_once if kept else _order_of_text)(given.strip(), where, name_of, stored)


def _order_of_text(text: str, where: str, name_of: Callable[[str], str], stored: bool) -> Order | None:
    if text[:1] in ("[", "{"):
        return _order_of_value(_parsed(text, where), where, name_of, stored)
    order = _named(text, where)
    return None if order is None else order.with_names(name_of, where, stored=stored)


# Callers send the same few again and again.
_order_of_text_once = lru_cache(maxsize=256)(_order_of_text)


def _order_of_value(given: Any, where: str, name_of: Callable[[str], str], stored: bool) -> Order | None:
    try:
        strategies = strategies_from(given)
    except BadRequest as error:
        raise BadRequest(f"{where}: {error}") from None
    order = parse_order(given if strategies is None else strategies, where)
    return order.with_names(name_of, where, stored=stored)


def _named(text: str, where: str) -> Order | None:
    if text and text not in NAMED:
        raise BadRequest(
            f"{where}: {text!r} is no known order; use JSON or one of {', '.join(NAMED)}",
            code="strategy_unknown",
        )
    return NAMED.get(text)


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
    """The order of candidates in a cluster, and whether its settings give one.

    Settings that are `stored` are not refused for what was taken once. Raises BadRequest.
    """
    given, where = _given(settings, CANDIDATES)
    order = None if given is None else order_of(given, where, stored=stored)
    return order, given is not None


def order_remarks(given: Any, where: str) -> tuple[str, ...]:
    """Return what has no effect of an order of candidates, one sentence each.

    Source: scoring.md, "Policies".
    """
    return tuple(f"{where}.{remark}" for remark in policy_remarks(_document(given)))


def scoring_remarks(settings: Settings) -> tuple[str, ...]:
    """What has no effect of the ways to score that a cluster is told, one sentence each.

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
    for strategy, place in zip(strategies, places, strict=True):
        _refuse_classes(strategy, place)
    pairs = zip(strategies, places, strict=True)
    return Order(tuple(_for_pods(each, place, keeps_scale=keeps_scale) for each, place in pairs)).plain


def _refuse_classes(strategy: Strategy, where: str) -> None:
    for at, (name, _) in enumerate(strategy.resources):
        if is_class(name):
            raise ScoringRefused(
                "resource_invalid", f"{where}.resources[{at}].name", f"{name} is nothing that pods request"
            )


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
    """Whether the setting is what kube-scheduler is configured with, which says nothing about uses."""
    try:
        return strategies_from(_document(settings.get(SCORING))) is not None
    except BadRequest:
        return False


def _document(given: Any) -> Any:
    """A setting as the JSON value that it is, or is the text of."""
    is_json = isinstance(given, str) and given.strip()[:1] in ("[", "{")
    return _parsed(given.strip(), SCORING) if is_json else given


def _follows_design(settings: Settings) -> bool:
    return settings.get("profile", "design") == "design" and bool(settings)


def _given(settings: Settings, use: str) -> tuple[Any, str]:
    """What the setting says about one use, and where. Raises ScoringRefused."""
    given = settings.get(SCORING)
    if not isinstance(given, Mapping) or not given.keys() & _USES:
        # As it was when candidates were all that the setting was about.
        return (given if use == CANDIDATES else None), SCORING
    unknown = sorted(map(str, given.keys() - _USES))
    if unknown:
        raise ScoringRefused("strategy_invalid", SCORING, f"{', '.join(unknown)} is not understood")
    return given.get(use), f"{SCORING}.{use}"


def _for_pods(strategy: Strategy, where: str, *, keeps_scale: bool = False) -> Strategy:
    """The strategy on the scale of pods: points from 0 to 10 are multiplied by 10, as Kubernetes does.

    `keeps_scale`: they stay, as they did in Policies.
    """
    if strategy.scope is not Scope.TREE:
        raise ScoringRefused("scope_invalid", f"{where}.scope", "pods know no scope")
    shape = strategy.shape
    return replace(strategy, shape=shape if shape is None or keeps_scale else shape.enlarged)


def _former(given: Any, where: str) -> Strategy:
    """A former setting: an object with a type and perhaps resources by their names in Kubernetes.

    What it may say about resources is what it always was: at least one, weights above 0, null for 1.
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
        resources = [_former_entry(entry, f"{where}.resources[{at}]") for at, entry in enumerate(resources)]
    return _for_pods(parse_strategy({**given, "resources": resources}, where), where)


def _former_entry(given: Any, where: str) -> Any:
    if not isinstance(given, Mapping):
        return given
    weight = given.get("weight")
    if weight == 0:
        raise ScoringRefused("weight_invalid", f"{where}.weight", "must be an integer from 1 to 100")
    return {"name": given.get("name"), "weight": 1 if weight is None else weight}
