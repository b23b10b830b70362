"""Label selectors: which objects are meant, by their labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from placement.kubernetes.manifest import Field
from placement.kubernetes.node_selection import Requirement, read_requirement

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


class LabelSelector(NamedTuple):
    """Requirements that must all hold; without any it means everything."""

    requirements: tuple[Requirement, ...] = ()

    def __str__(self) -> str:
        """The selector as people write it."""
        return " and ".join(map(str, self.requirements))

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels are meant (Kubernetes: label selectors)."""
        return all(each.holds(labels) for each in self.requirements)

    def document(self) -> dict[str, Any]:
        """The selector as JSON."""
        return {
            "matchExpressions": [
                {"key": each.key, "operator": each.operator, "values": list(each.values)}
                for each in self.requirements
            ]
        }


def read_label_selector(selector: Field) -> LabelSelector:
    """The selector in a field; whatever breaks its schema is reported."""
    labels = selector.member("matchLabels").members().items()
    return LabelSelector(
        (
            *(Requirement(key, "In", (value.text() or "",)) for key, value in labels),
            *(read_requirement(each, _OPERATORS) for each in selector.member("matchExpressions").elements()),
        )
    )
