"""Cells that people and programs read differently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cliff.columns import FormattableColumn


class ResourceAmounts(FormattableColumn[Mapping[str, int]]):
    """Amounts by resource class."""

    def human_readable(self) -> str:
        """One amount a line."""
        return "\n".join(f"{name}={amount}" for name, amount in sorted(self._value.items()))


class Lines(FormattableColumn[Sequence[str]]):
    """Texts."""

    def human_readable(self) -> str:
        """One text a line."""
        return "\n".join(self._value)


class Pairs(FormattableColumn[Mapping[str, str]]):
    """Texts by name."""

    def human_readable(self) -> str:
        """One pair a line."""
        return "\n".join(f"{name}={text}" for name, text in self._value.items())


class Containers(FormattableColumn[Sequence[Mapping[str, Any]]]):
    """Containers of a pod."""

    def human_readable(self) -> str:
        """One container a line, with the CPUs on which it runs."""
        return "\n".join(
            f"{container['name']}: CPUs {container.get('cpuset', '?') or 'none'}" for container in self._value
        )


class Misses(FormattableColumn[Sequence[Mapping[str, Any]]]):
    """What came closest to a condition that none meets."""

    def human_readable(self) -> str:
        """What each lacks, a sentence a line."""
        return "\n".join(sentence for miss in self._value for sentence in miss["sentences"])


class Groups(FormattableColumn[Mapping[str, Any]]):
    """Request groups by suffix."""

    def human_readable(self) -> str:
        """One group a line: its suffix, its amounts, its traits."""
        return "\n".join(f"{suffix or '(base)'}: {_asked(group)}" for suffix, group in self._value.items())


class Cells(FormattableColumn["Sequence[Mapping[str, Any]] | None"]):
    """Guest NUMA cells."""

    def human_readable(self) -> str:
        """One cell a line."""
        return "\n".join(
            f"{cell['id']}: shared {_cpus(cell['cpuset'])}, dedicated {_cpus(cell['pcpuset'])}, "
            f"{cell['memory']} MiB"
            for cell in self._value or ()
        )


def _asked(group: Mapping[str, Any]) -> str:
    amounts = [f"{name}={amount}" for name, amount in sorted(group.get("resources", {}).items())]
    forbidden = [f"!{name}" for name in group.get("forbidden", ())]
    return " ".join([*amounts, *group.get("required", ()), *forbidden])


def _cpus(cpus: Sequence[int]) -> str:
    from placement.dialects.nova.guest.cpuset import format_cpuset

    return format_cpuset(cpus) or "none"
