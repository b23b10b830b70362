"""The commands of `placement` by section: where each lives, and the arguments of an example."""

from __future__ import annotations

from typing import NamedTuple

PREFIX = "placement"


class Entry(NamedTuple):
    """A command: the module and class below `placement`, arguments for an example, and its section."""

    place: str
    example: str
    section: str


_SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Ask": {
        "status": ("client.commands.status:ShowStatus", ""),
        "candidates": (
            "client.commands.candidates:ListCandidates",
            "resources=VCPU:2,MEMORY_MB:4096 limit=5 --cluster cloud",
        ),
        "explain": ("client.commands.candidates:ExplainRequest", "resources=PCPU:400 --cluster edge"),
        "capacity": (
            "client.commands.capacity:ShowCapacity",
            "resources=MEMORY_MB:16384 resources_cpus=PCPU:4 split_cpus=PCPU --by host",
        ),
        "tree": ("client.commands.node:ShowTree", "cloud/compute-01"),
        "host show": ("client.commands.node:ShowTree", "cloud/compute-01"),
        "host list": ("client.commands.host:ListHosts", "--cluster cloud"),
        "aggregate list": ("client.commands.aggregate:ListAggregates", "--cluster cloud"),
        "allocation list": ("client.commands.allocation:ListAllocations", "--cluster edge --limit 5"),
        "allocation show": (
            "client.commands.allocation:ShowAllocation",
            "b43dbd27-06a5-4dc9-a073-feda931c578a",
        ),
        "orphans": ("client.commands.orphans:ListOrphans", "--kind migration"),
        "audit": ("client.commands.audit:ListAudit", "--action delete --since 2026-01-31T12:00:00Z"),
    },
    "Change": {
        "claim": ("client.commands.claim:ClaimRequest", "resources=VCPU:2 --cluster cloud --project web"),
        "allocation delete": (
            "client.commands.allocation:DeleteAllocation",
            "b43dbd27-06a5-4dc9-a073-feda931c578a",
        ),
        "aggregate set": (
            "client.commands.aggregate:SetAggregate",
            "6d1b7a52-0f0e-4f0c-9a43-0d5f2f3f1c11 --name 'rack 12'",
        ),
        "plan make": ("client.commands.plan:MakePlan", "empty cloud/compute-01 --save plan.json"),
        "plan show": ("client.commands.plan:ShowPlan", "plan.json"),
        "plan check": ("client.commands.plan:CheckPlan", "plan.json"),
        "plan apply": ("client.commands.plan:ApplyPlan", "plan.json --dry-run"),
    },
    "Kubernetes": {
        "cluster list": ("client.commands.cluster:ListClusters", "--watch"),
        "cluster show": ("client.commands.cluster:ShowCluster", "edge"),
        "cluster create": ("client.commands.cluster:CreateCluster", "lab --description 'two hosts'"),
        "cluster set": ("client.commands.cluster:SetCluster", "lab --scoring pack"),
        "cluster unset": ("client.commands.cluster:UnsetCluster", "lab --scoring"),
        "cluster delete": ("client.commands.cluster:DeleteCluster", "lab"),
        "node list": ("client.commands.node:ListNodes", "edge"),
        "node show": ("client.commands.node:ShowNode", "edge edge-01"),
        "node import": ("client.commands.node:ImportNodes", "lab nodes.yaml"),
        "node delete": ("client.commands.node:DeleteNode", "lab edge-01"),
        "pod list": ("client.commands.pod:ListPods", "edge --qos LSR"),
        "pod show": ("client.commands.pod:ShowPod", "edge worker-0 --namespace default"),
        "pod create": ("client.commands.pod:CreatePods", "edge pod.yaml"),
        "pod delete": ("client.commands.pod:DeletePod", "edge worker-0"),
        "pod preview": ("client.commands.pod:PreviewPod", "edge pod.yaml --limit 3"),
        "pod explain": ("client.commands.pod:ExplainPod", "edge pod.yaml"),
        "pod translate": ("client.commands.pod:TranslatePod", "edge pod.yaml"),
        "reservation list": ("client.commands.reservation:ListReservations", "edge"),
        "reservation show": ("client.commands.reservation:ShowReservation", "edge kept"),
        "reservation create": ("client.commands.reservation:CreateReservations", "edge reservation.yaml"),
        "reservation delete": ("client.commands.reservation:DeleteReservation", "edge kept"),
        "sync kubernetes": ("sync.command:SyncKubernetes", "--cluster edge --once"),
        "schedule kubernetes": ("scheduling.command:ScheduleKubernetes", "--cluster edge"),
    },
    "OpenStack": {
        "flavor translate": ("client.commands.flavor:TranslateFlavor", "--vcpus 4 --ram 4096"),
        "flavor candidates": (
            "client.commands.flavor:ListFlavorCandidates",
            "flavor.json --cluster cloud --limit 5",
        ),
        "flavor explain": ("client.commands.flavor:ExplainFlavor", "--vcpus 400 --ram 4096"),
        "import": ("migrate.commands:ImportIncumbent", "/etc/placement/placement.conf --dry-run"),
        "export": ("migrate.commands:ExportIncumbent", "/etc/placement/placement.conf --dry-run"),
        "verify": (
            "migrate.commands:VerifyServices",
            "http://old:8778 http://new:8778 --sample 100",
        ),
    },
    "Operate": {
        "serve": ("server.commands:Serve", "--demo"),
        "config check": ("server.check_commands:CheckConfiguration", "--config-file placement.conf"),
        "db upgrade": ("server.schema_commands:Upgrade", "--config-file placement.conf"),
        "db version": ("server.schema_commands:ShowSchemaVersion", "--config-file placement.conf"),
        "db check": ("server.check_commands:CheckDatabase", "--repair"),
        "completion": ("client.completion:PrintCompletion", "bash"),
        "help": ("client.cli:Help", "node list"),
        "man": ("client.manual:WriteManual", "~/.local/share/man/man1"),
    },
}
COMMANDS = {
    name: Entry(f"placement.{place}", example, section)
    for section, commands in _SECTIONS.items()
    for name, (place, example) in commands.items()
}
"""All commands by name; a command is imported when it is wanted."""
_LOCAL = {"serve", "config", "db", "import", "export", "verify", "completion", "help", "man"}
"""First words of commands that are no question to one service, so the `openstack` client lacks them."""


def entry_points() -> dict[str, str]:
    """Return the commands that the `openstack` client has, too, as entry points of pyproject.toml."""
    return {
        f"{PREFIX}_{name.replace(' ', '_')}": entry.place
        for name, entry in COMMANDS.items()
        if name.split()[0] not in _LOCAL
    }
