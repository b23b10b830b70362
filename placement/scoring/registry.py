"""The strategies there are: each is one module with a rule, and one line here."""

from __future__ import annotations

from collections.abc import Mapping

from placement.scoring import (
    balanced_allocation,
    least_allocated,
    most_allocated,
    requested_to_capacity_ratio,
)
from placement.scoring.rule import Rule

RULES: Mapping[str, Rule] = {
    module.RULE.name: module.RULE
    for module in (requested_to_capacity_ratio, least_allocated, most_allocated, balanced_allocation)
}
