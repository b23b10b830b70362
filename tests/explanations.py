"""The one shape that every explanation has, wherever it is answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placement.engine.domain.explanation import ConditionKind, CountedUnit, Reason

_CONDITION = {"kind": str, "resource_class": str, "wanted": int, "required": list, "forbidden": list}
_STAGE = {
    "group": (str, type(None)),
    "condition": str,
    "counted": str,
    "came": int,
    "providers": (int, type(None)),
    "trees": int,
    "trees_came": int,
    "at_least": bool,
    "sentence": str,
    **_CONDITION,
}
_AMOUNTS = {"resource_class": str, "wanted": int, "free": int, "missing": int}
_MISS = {
    "resource_provider": dict,
    "sentences": list,
    "lacking_groups": list,
    "lacking": list,
    "unwanted": list,
    "shortages": list,
    "reasons": list,
    **_AMOUNTS,
}
_SHORTAGE = {"reason": str, "groups": list, "resource_provider": dict, "condition": dict, **_AMOUNTS}


def check_shape(explanation: Mapping[str, Any]) -> None:
    """Raise AssertionError unless it has the shape, and its members agree with each other."""
    always = {"stages", "first_empty", "nearest", "complete", "hints", "sentences"}
    assert always <= set(explanation) <= always | {"offered", "elsewhere", "margin"}
    passed = [_check_stage(stage) for stage in explanation["stages"]]
    assert explanation["first_empty"] == next((at for at, count in enumerate(passed) if not count), None)
    assert isinstance(explanation["complete"], bool)
    assert len(explanation["nearest"]) <= 5
    assert explanation["nearest"] == [] or explanation["first_empty"] is not None
    said = [stage["sentence"] for stage in explanation["stages"]]
    at = len(said) if explanation["first_empty"] is None else explanation["first_empty"] + 1
    said[at:at] = explanation["hints"]
    for miss in reversed(explanation["nearest"]):
        _check_miss(miss)
        said[at:at] = miss["sentences"]
    assert explanation["sentences"] == said
    # What fits nowhere has a sentence besides the stages; each stage begins with what the one before left.
    assert explanation["first_empty"] is None or explanation["nearest"] or explanation["hints"]
    left = [stage["trees"] for stage in explanation["stages"]]
    assert [stage["trees_came"] for stage in explanation["stages"][1:]] == left[:-1]


def _check_stage(stage: Mapping[str, Any]) -> int:
    """How many passed it."""
    _check_members(stage, _STAGE, set(_STAGE) - set(_CONDITION) - {"at_least"} | {"kind"})
    assert stage["kind"] in set(ConditionKind)
    assert stage["counted"] in set(CountedUnit)
    assert stage["sentence"].startswith(f"{stage['condition']}: ")
    assert (stage["providers"] is None) == (stage["counted"] == "trees")
    passed: int = stage["trees"] if stage["providers"] is None else stage["providers"]
    assert 0 <= passed <= stage["came"]
    assert 0 <= stage["trees"] <= stage["trees_came"]
    assert f"{stage['trees']} of {stage['trees_came']} " in stage["sentence"]
    return passed


def _check_miss(miss: Mapping[str, Any]) -> None:
    _check_members(miss, _MISS, {"resource_provider", "sentences"})
    _check_provider(miss["resource_provider"])
    assert miss["sentences"]
    assert all(isinstance(text, str) for text in miss["sentences"])
    assert _AMOUNTS.keys() <= miss.keys() or not _AMOUNTS.keys() & miss.keys()
    for shortage in miss.get("shortages", ()):
        _check_members(shortage, _SHORTAGE, {"reason", "groups"})
        assert shortage["reason"] in set(Reason)
        if "resource_provider" in shortage:
            _check_provider(shortage["resource_provider"])
        if "missing" in shortage:
            assert shortage["missing"] == shortage["wanted"] - shortage["free"] > 0


def _check_provider(provider: Mapping[str, Any]) -> None:
    assert set(provider) == {"uuid", "name"}
    assert isinstance(provider["uuid"], str)
    assert isinstance(provider["name"], str)


def _check_members(body: Mapping[str, Any], known: Mapping[str, Any], required: set[str]) -> None:
    assert required <= set(body) <= set(known)
    for name, member in body.items():
        assert isinstance(member, known[name]), (name, member)
