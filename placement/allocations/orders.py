"""The setting `scoring` of a cluster: how candidates, pods and NUMA nodes are scored.

It holds one order or strategy for each use, all in one vocabulary: a name, a strategy, a list of strategies,
or a configuration of kube-scheduler (scheduler_configurations).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from placement.allocations.kubernetes_resources import class_of, is_class, resource_of
from placement.allocations.scheduler_configurations import is_policy, policy_remarks, strategies_from
from placement.engine.domain.errors import BODY, BadRequest, RequestPlace
from placement.engine.scoring import order as scoring_order
from placement.engine.scoring.parameters import ScoringRefused
from placement.http.query_strings import LONGEST_KEPT

SCORING = "scoring"
CANDIDATES = "candidates"
PODS = "pods"
NUMA = "numa"
# Former settings for one use each; they are still read.
FORMER = {PODS: "hostScoring", NUMA: "numaScoring"}
_PLACE = BODY / SCORING
_USES = frozenset({CANDIDATES, PODS, NUMA})
Settings = Mapping[str, Any]


def order_of(
    given: Any, place: RequestPlace, name_of: Callable[[str], str] = class_of, *, stored: bool = False
) -> scoring_order.Order | None:
    """Return the order of a JSON value, None for none; `name_of` translates the names of resources in it.

    A `stored` value is not refused for what was accepted once. Raises BadRequest naming the field.
    """
    if not isinstance(given, str):
        return _order_of_value(given, place, name_of, stored)
    is_kept = len(given) <= LONGEST_KEPT
    return (_order_of_text if is_kept else _order_of_text.__wrapped__)(given.strip(), place, name_of, stored)


# Callers repeat a few texts.
@lru_cache(maxsize=256)
def _order_of_text(
    text: str, place: RequestPlace, name_of: Callable[[str], str], stored: bool
) -> scoring_order.Order | None:
    if text[:1] in ("[", "{"):
        return _order_of_value(_parsed(text, place), place, name_of, stored)
    if text and text not in scoring_order.NAMED:
        raise BadRequest(
            f"{text!r} is not a known order; use JSON or one of {', '.join(scoring_order.NAMED)}",
            place=place,
            code="strategy_unknown",
        )
    order = scoring_order.NAMED.get(text)
    return None if order is None else order.with_names(name_of, place, stored=stored)


def _order_of_value(
    given: Any, place: RequestPlace, name_of: Callable[[str], str], stored: bool
) -> scoring_order.Order | None:
    try:
        strategies = strategies_from(given)
    except BadRequest as error:
        raise BadRequest(str(error), place=place) from None
    order = scoring_order.parse_order(given if strategies is None else strategies, place)
    return order.with_names(name_of, place, stored=stored)


def _parsed(text: str, place: RequestPlace) -> Any:
    try:
        found = json.loads(text, parse_constant=_refuse_constant)
        # Escapes can spell halves of characters, which no answer could show.
        json.dumps(found, ensure_ascii=False).encode()
        return found
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"Malformed JSON: {error}", place=place) from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def candidates_order(settings: Settings, *, stored: bool = False) -> tuple[scoring_order.Order | None, bool]:
    """Return the order of candidates in a cluster, and whether its settings give one.

    Settings that are `stored` are not refused for what was accepted once. Raises BadRequest.
    """
    given, place = _given(settings, CANDIDATES)
    order = None if given is None else order_of(given, place, stored=stored)
    return order, given is not None


def order_remarks(given: Any, place: RequestPlace | str) -> tuple[str, ...]:
    """Return one sentence for each part of an order of candidates that has no effect.

    Source: scoring.md, "Policies".
    """
    return tuple(f"{place}.{remark}" for remark in policy_remarks(_document(given)))


def scoring_remarks(settings: Settings) -> tuple[str, ...]:
    """Return one sentence for each part of a cluster's scoring settings that has no effect.

    Source: scoring.md, "Policies".
    """
    scoring = settings.get(SCORING)
    uses: dict[str, Any] = {SCORING: scoring}
    if isinstance(scoring, Mapping) and scoring.keys() & _USES:
        uses = {f"{SCORING}.{use}": given for use, given in scoring.items()}
    remarks = [remark for place, given in uses.items() for remark in order_remarks(given, place)]
    if _follows_design(settings) and _is_for_all(settings) and _of_pods(settings) is None:
        remarks.append(f"{SCORING}: lists resources that pods do not request; it orders candidates only")
    return tuple(remarks)


def pod_scoring(settings: Settings) -> scoring_order.Order:
    """Return how pods are scored on nodes: the weighted sum of the strategies, of one its plain score.

    Raises BadRequest naming the field. Source: scoring.md, "Ordering", "Policies".
    """
    return _scoring_by(settings, PODS)


def numa_scoring(settings: Settings) -> scoring_order.Strategy:
    """Return how NUMA nodes are scored for a pod; scores are 0 to 100. Raises BadRequest naming the field."""
    (strategy,) = _scoring_by(settings, NUMA).strategies
    return strategy


def _scoring_by(settings: Settings, use: str) -> scoring_order.Order:
    given, place = _given(settings, use)
    former = settings.get(FORMER[use])
    if use == PODS and given is None and former is None:
        given = _of_pods(settings)
    if former is not None:
        if given is not None:
            raise ScoringRefused(
                "strategy_invalid", BODY / FORMER[use], f"{place} is given too, and means the same"
            )
        return scoring_order.Order((_former(former, BODY / FORMER[use]),)).plain
    if given is None:
        return scoring_order.POD_SCORING
    keeps_scale = _follows_design(settings) and is_policy(_document(given))
    order = order_of(given, place, resource_of)
    if order is None:
        raise ScoringRefused("strategy_invalid", place, "must be a strategy, or several")
    strategies = order.strategies
    if use == NUMA and len(strategies) != 1:
        raise ScoringRefused("strategy_invalid", place, "must be one strategy")
    places = [place] if len(strategies) == 1 else [place / at for at in range(len(strategies))]
    pairs = list(zip(strategies, places, strict=True))
    for strategy, place in pairs:
        _refuse_classes(strategy, place)
    return scoring_order.Order(
        tuple(_for_pods(each, place, keeps_scale=keeps_scale) for each, place in pairs)
    ).plain


def _refuse_classes(strategy: scoring_order.Strategy, place: RequestPlace) -> None:
    """Raise ScoringRefused for a resource that is a class of Placement and that pods do not request."""
    for at, (name, _) in enumerate(strategy.resources):
        if is_class(name):
            field = place / "resources" / at / "name"
            raise ScoringRefused("resource_invalid", field, f"{name} is not a resource that pods request")


def _of_pods(settings: Settings) -> Any:
    """Return the setting of a cluster for all uses, if pods request all of its resources; else None.

    Source: scoring.md, "Policies".
    """
    if not _follows_design(settings) or not _is_for_all(settings):
        return None
    given = settings[SCORING]
    order = order_of(given, _PLACE, resource_of)
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
    return _parsed(given.strip(), _PLACE) if is_json else given


def _follows_design(settings: Settings) -> bool:
    return settings.get("profile", "design") == "design" and bool(settings)


def _given(settings: Settings, use: str) -> tuple[Any, RequestPlace]:
    """Return the part of the setting for one use, and its place. Raises ScoringRefused."""
    given = settings.get(SCORING)
    if not isinstance(given, Mapping) or not given.keys() & _USES:
        # The setting was about candidates only at first.
        return (given if use == CANDIDATES else None), _PLACE
    unknown = sorted(map(str, given.keys() - _USES))
    if unknown:
        raise ScoringRefused("strategy_invalid", _PLACE, f"{', '.join(unknown)} is not understood")
    return given.get(use), _PLACE / use


def _for_pods(
    strategy: scoring_order.Strategy, place: RequestPlace, *, keeps_scale: bool = False
) -> scoring_order.Strategy:
    """Return the strategy on the scale of pods: points from 0 to 10 are multiplied by 10, as in Kubernetes.

    `keeps_scale`: the points stay, as they did in Policies.
    """
    if strategy.scope is not scoring_order.Scope.TREE:
        raise ScoringRefused("scope_invalid", place / "scope", "pods know no scope")
    shape = strategy.shape
    return replace(strategy, shape=shape if shape is None or keeps_scale else shape.enlarged)


def _former(given: Any, place: RequestPlace) -> scoring_order.Strategy:
    """Read a former setting: an object with a type and perhaps resources by their names in Kubernetes.

    The former rules for resources still hold: at least one, weights above 0, null for 1.
    """
    if not isinstance(given, Mapping):
        raise ScoringRefused("strategy_invalid", place, "must be an object with a type")
    resources = given.get("resources")
    if resources is None:
        strategy = replace(
            scoring_order.parse_strategy(dict(given), place),
            resources=scoring_order.DEFAULT_SCORING.resources,
        )
        return _for_pods(strategy, place)
    if resources == []:
        raise ScoringRefused("resource_invalid", place / "resources", "there must be at least one resource")
    if isinstance(resources, list):
        resources = list(resources)
        for at, entry in enumerate(resources):
            if isinstance(entry, Mapping):
                weight = entry.get("weight")
                if weight == 0:
                    field = place / "resources" / at / "weight"
                    raise ScoringRefused("weight_invalid", field, "must be an integer from 1 to 100")
                resources[at] = {"name": entry.get("name"), "weight": 1 if weight is None else weight}
    return _for_pods(scoring_order.parse_strategy({**given, "resources": resources}, place), place)
