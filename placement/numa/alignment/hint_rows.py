"""The hints of all providers as rows to be merged, and as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from placement.numa.alignment.hints import Hint

ProviderHints = Mapping[str, Sequence[Hint] | None]
"""What one provider of resources says, by resource; nothing at all and None stand for no opinion."""

_DO_NOT_CARE = Hint(None, preferred=True)
_UNSATISFIED = Hint(None, preferred=False, unsatisfied=True)


class HintRows(NamedTuple):
    """Rows of hints in the order of providers, then resources, and what cannot be satisfied."""

    rows: tuple[Sequence[Hint], ...]
    reasons: tuple[str, ...]


def collect_rows(providers: Iterable[ProviderHints | None]) -> HintRows:
    """One row for every resource of every provider, and one for each provider without an opinion.

    Source: koordinator.md, "Merge".
    """
    rows: list[Sequence[Hint]] = []
    reasons = []
    for provider in providers:
        if not provider:
            rows.append((_DO_NOT_CARE,))
            continue
        for resource, hints in sorted(provider.items()):
            if hints is None:
                rows.append((_DO_NOT_CARE,))
            elif hints:
                rows.append(hints)
            else:
                rows.append((_UNSATISFIED,))
                reasons.append(f"Unsatisfied NUMA {resource}")
    return HintRows(tuple(rows), tuple(reasons))


def summarize(providers: Iterable[ProviderHints | None]) -> list[str]:
    """Preferred and possible NUMA nodes of each resource, in words (koordinator.md, "Policies")."""
    return sorted(
        _summary(resource, hints)
        for provider in providers
        for resource, hints in (provider or {}).items()
        if hints
    )


def single_numa_rows(rows: Iterable[Sequence[Hint]]) -> tuple[Sequence[Hint], ...]:
    """The rows reduced to preferred hints that do not care or name exactly one NUMA node.

    Source: koordinator.md, "Policies".
    """
    return tuple(
        [hint for hint in row if hint.preferred and (hint.affinity is None or hint.affinity.bit_count() == 1)]
        for row in rows
    )


def _summary(resource: str, hints: Sequence[Hint]) -> str:
    preferred = " ".join(_binary(hint.affinity) for hint in hints if hint.preferred)
    among = " ".join(_binary(hint.affinity) for hint in hints)
    return f"{resource} prefer [{preferred}] among [{among}]"


def _binary(affinity: int | None) -> str:
    """A mask in binary with at least two digits and an even number of them."""
    if affinity is None:
        return "<nil>"
    digits = max(2, affinity.bit_length() + affinity.bit_length() % 2)
    return f"{affinity:0{digits}b}"
