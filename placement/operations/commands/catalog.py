"""Which commands there are and where they live; a command is imported when it is wanted."""

from __future__ import annotations

from importlib.metadata import EntryPoint

from cliff.command import Command
from cliff.commandmanager import CommandManager

_COMMANDS = {
    "serve": "operations.commands.serve:Serve",
    "db upgrade": "operations.commands.database:Upgrade",
    "db version": "operations.commands.database:Version",
    "db check": "operations.commands.check:Check",
    "import": "operations.commands.moving:ImportIncumbent",
    "export": "operations.commands.moving:ExportIncumbent",
    "verify": "operations.commands.verify:VerifyServices",
    "candidates": "operations.commands.candidates:ListCandidates",
    "explain": "operations.commands.explain:ExplainRequest",
    "capacity": "operations.commands.capacity:ShowCapacity",
    "plan make": "operations.commands.plan:MakePlan",
    "plan show": "operations.commands.plan:ShowPlan",
    "plan check": "operations.commands.plan:CheckPlan",
    "plan apply": "operations.commands.plan:ApplyPlan",
    "claim": "operations.commands.claim:ClaimRequest",
    "tree": "operations.commands.tree:ShowTree",
    "cluster list": "operations.commands.cluster:ListClusters",
    "cluster show": "operations.commands.cluster:ShowCluster",
    "cluster create": "operations.commands.cluster:CreateCluster",
    "cluster set": "operations.commands.cluster:SetCluster",
    "cluster unset": "operations.commands.cluster:UnsetCluster",
    "cluster delete": "operations.commands.cluster:DeleteCluster",
    "node list": "operations.commands.node:ListNodes",
    "node show": "operations.commands.node:ShowNode",
    "node import": "operations.commands.node:ImportNodes",
    "node delete": "operations.commands.node:DeleteNode",
    "pod list": "operations.commands.pod:ListPods",
    "pod show": "operations.commands.pod:ShowPod",
    "pod create": "operations.commands.pod:CreatePods",
    "pod delete": "operations.commands.pod:DeletePod",
    "pod preview": "operations.commands.pod:PreviewPod",
    "pod explain": "operations.commands.pod:ExplainPod",
    "pod translate": "operations.commands.pod:TranslatePod",
    "reservation list": "operations.commands.reservation:ListReservations",
    "reservation show": "operations.commands.reservation:ShowReservation",
    "reservation create": "operations.commands.reservation:CreateReservations",
    "reservation delete": "operations.commands.reservation:DeleteReservation",
    "allocation list": "operations.commands.allocation:ListAllocations",
    "allocation show": "operations.commands.allocation:ShowAllocation",
    "allocation delete": "operations.commands.allocation:DeleteAllocation",
    "audit": "operations.commands.audit:ListAudit",
    "sync kubernetes": "operations.commands.sync:SyncKubernetes",
    "flavor translate": "operations.commands.flavor:TranslateFlavor",
    "flavor candidates": "operations.commands.flavor:ListFlavorCandidates",
    "flavor explain": "operations.commands.flavor:ExplainFlavor",
    "completion": "operations.commands.completion:PrintCompletion",
    "help": "operations.commands.help:Help",
    "man": "operations.commands.manual:WriteManual",
}


_OF_CLIFF = {"complete", "help"}
_PREFIX = "placement"
_LOCAL = {"serve", "db", "import", "export", "verify", "completion", "help", "man"}
"""What is no question to a service; first words of commands."""


def entry_points() -> dict[str, str]:
    """The commands that the `openstack` client has, too, as entry points of pyproject.toml name them."""
    return {
        f"{_PREFIX}_{name.replace(' ', '_')}": f"placement.{place}"
        for name, place in _COMMANDS.items()
        if name.split()[0] not in _LOCAL
    }


class Catalog(CommandManager):
    """The commands of this package, without looking for any in other packages."""

    def __init__(self) -> None:
        super().__init__()
        for name, place in _COMMANDS.items():
            self.commands[name] = EntryPoint(name, f"placement.{place}", "placement.commands")

    def add_command(self, name: str, command_class: type[Command]) -> None:
        """Add a command, but none of those that cliff adds to every program: ours are better."""
        if name not in _OF_CLIFF:
            super().add_command(name, command_class)
