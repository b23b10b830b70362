"""A host as it would be after a claim, to be drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from placement.allocations.statements.lists import ListedHolding
from placement.pods.services.node_view import CpuView, NodeView
from placement.pods.services.views import HostView
from placement.web.host_boxes import FREE

_THIS_CLAIM = "this claim"
_CPU_CLASSES = ("PCPU", "VCPU")

Claim = Mapping[str, Mapping[str, int]]
"""Amounts by the uuid of a provider and by resource class."""


def after_claim(host: HostView, claim: Claim) -> HostView:
    """Return the host with what a claim would take there; what it takes elsewhere is left out."""
    held, records = list(host.held), dict(host.records)
    for member in host.members:
        amounts = claim.get(member.uuid, {})
        kept = records.get(member.id, {})
        taken = {of: amounts[each.class_name] for of, each in kept.items() if each.class_name in amounts}
        held += [
            ListedHolding(_THIS_CLAIM, "", _THIS_CLAIM, None, member.id, of, amount)
            for of, amount in taken.items()
        ]
        records[member.id] = {
            of: each._replace(used=each.used + taken.get(of, 0)) for of, each in kept.items()
        }
    view = None if host.view is None else _with_cpus(host, host.view, claim)
    return replace(host, held=held, records=records, view=view)


def _with_cpus(host: HostView, view: NodeView, claim: Claim) -> NodeView:
    """Return the view of a node in which a claim of single cores takes free threads of these."""
    wanted = {
        member.name: sum(claim.get(member.uuid, {}).get(name, 0) for name in _CPU_CLASSES)
        for member in host.members
    }
    return replace(view, cpus=list(_cpus(host.root.name, view, wanted)))


def _cpus(root: str, view: NodeView, wanted: dict[str, int]) -> Iterator[CpuView]:
    for each in view.cpus:
        core = f"{root}/core-{each.cpu.socket}-{each.cpu.core}"
        is_taken = each.owner == FREE and wanted.get(core, 0) > 0
        if is_taken:
            wanted[core] -= 1
        yield replace(each, owner="others") if is_taken else each
