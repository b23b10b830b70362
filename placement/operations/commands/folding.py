"""Names of providers that differ in a number only, as one: core-0-[1-12]."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from placement.numa.cpuset import format_cpu_list

Held = Mapping[str, int]
_NUMBERED = re.compile(r"(.*\D)(0|[1-9][0-9]*)", re.DOTALL)


def folded(held: Iterable[tuple[str, Held]]) -> Iterator[tuple[str, Held, int]]:
    """(name, amounts of each, how many) of the providers that hold something; alike ones are one entry."""
    groups: dict[tuple[str, tuple[tuple[str, int], ...]], list[str]] = {}
    for name, amounts in held:
        numbered = _NUMBERED.fullmatch(name)
        stem = numbered[1] if numbered else name
        groups.setdefault((stem, tuple(sorted(amounts.items()))), []).append(name)
    for (stem, each), names in groups.items():
        if len(names) == 1:
            yield names[0], dict(each), 1
        else:
            numbers = format_cpu_list(int(name.removeprefix(stem)) for name in names)
            yield f"{stem}[{numbers}]", dict(each), len(names)
