"""Which commands there are and where they live; a command is imported when it is wanted."""

from __future__ import annotations

from importlib.metadata import EntryPoint

from cliff.command import Command
from cliff.commandmanager import CommandManager

_COMMANDS = {
    "serve": "serve:Serve",
    "db upgrade": "database:Upgrade",
    "db version": "database:Version",
    "db check": "check:Check",
    "import": "moving:ImportIncumbent",
    "export": "moving:ExportIncumbent",
    "verify": "verify:VerifyServices",
    "candidates": "candidates:ListCandidates",
    "explain": "explain:ExplainRequest",
    "capacity": "capacity:ShowCapacity",
    "plan make": "plan:MakePlan",
    "plan show": "plan:ShowPlan",
    "plan check": "plan:CheckPlan",
    "plan apply": "plan:ApplyPlan",
    "claim": "claim:ClaimRequest",
    "tree": "tree:ShowTree",
    "cluster list": "cluster:ListClusters",
    "cluster show": "cluster:ShowCluster",
    "cluster create": "cluster:CreateCluster",
    "cluster set": "cluster:SetCluster",
    "cluster unset": "cluster:UnsetCluster",
    "cluster delete": "cluster:DeleteCluster",
    "node list": "node:ListNodes",
    "node show": "node:ShowNode",
    "node import": "node:ImportNodes",
    "node delete": "node:DeleteNode",
    "pod list": "pod:ListPods",
    "pod show": "pod:ShowPod",
    "pod create": "pod:CreatePods",
    "pod delete": "pod:DeletePod",
    "pod preview": "pod:PreviewPod",
    "pod explain": "pod:ExplainPod",
    "pod translate": "pod:TranslatePod",
    "reservation list": "reservation:ListReservations",
    "reservation show": "reservation:ShowReservation",
    "reservation create": "reservation:CreateReservations",
    "reservation delete": "reservation:DeleteReservation",
    "allocation list": "allocation:ListAllocations",
    "allocation show": "allocation:ShowAllocation",
    "allocation delete": "allocation:DeleteAllocation",
    "audit": "audit:ListAudit",
    "sync kubernetes": "sync:SyncKubernetes",
    "flavor translate": "flavor:TranslateFlavor",
    "flavor candidates": "flavor:ListFlavorCandidates",
    "flavor explain": "flavor:ExplainFlavor",
    "completion": "completion:PrintCompletion",
    "help": "help:Help",
    "man": "manual:WriteManual",
}


_OF_CLIFF = {"complete", "help"}
_PREFIX = "placement"
_LOCAL = {"serve", "db", "import", "export", "verify", "completion", "help", "man"}
"""What is no question to a service; first words of commands."""


def entry_points() -> dict[str, str]:
    """The commands that the `openstack` client has, too, as entry points of pyproject.toml name them."""
    return {
        f"{_PREFIX}_{name.replace(' ', '_')}": f"{__package__}.{place}"
        for name, place in _COMMANDS.items()
        if name.split()[0] not in _LOCAL
    }


class Catalog(CommandManager):
    """The commands of this package, without looking for any in other packages."""

    def __init__(self) -> None:
        super().__init__()
        for name, place in _COMMANDS.items():
            self.commands[name] = EntryPoint(name, f"{__package__}.{place}", "placement.commands")

    def add_command(self, name: str, command_class: type[Command]) -> None:
        """Add a command, but none of those that cliff adds to every program: ours are better."""
        if name not in _OF_CLIFF:
            super().add_command(name, command_class)
