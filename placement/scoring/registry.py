"""The strategies by name; each is one module with a rule, and one line here."""

from __future__ import annotations

from collections.abc import Mapping

from placement.scoring.balanced_allocation import RULE as BALANCED_ALLOCATION
from placement.scoring.least_allocated import RULE as LEAST_ALLOCATED
from placement.scoring.most_allocated import RULE as MOST_ALLOCATED
from placement.scoring.requested_to_capacity_ratio import RULE as REQUESTED_TO_CAPACITY_RATIO
from placement.scoring.rule import Rule

RULES: Mapping[str, Rule] = {
    rule.name: rule
    for rule in (REQUESTED_TO_CAPACITY_RATIO, LEAST_ALLOCATED, MOST_ALLOCATED, BALANCED_ALLOCATION)
}
