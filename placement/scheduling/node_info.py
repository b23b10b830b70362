"""What scheduling has to know of a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from placement.kubernetes.node_selection import NodeFace
from placement.numa.host_score import HostTotals
from placement.scheduling.host import Host
from placement.scheduling.node_offers import NodeOffers, Place


class NodeInfo(Protocol):
    """A node with everybody on it, as of one moment; never changed, so that it can be a key."""

    @property
    def name(self) -> str:
        """The name of the node, no other one of the cluster has it."""

    @property
    def uuid(self) -> str:
        """The uuid of its host provider."""

    @property
    def provider_name(self) -> str:
        """The name of that provider."""

    @property
    def face(self) -> NodeFace:
        """What pods choose nodes by."""

    @property
    def host(self) -> Host:
        """Its CPUs and NUMA nodes and who holds them."""

    @property
    def offers(self) -> NodeOffers:
        """What its providers offer."""

    @property
    def free(self) -> Mapping[str, int]:
        """The units of each class of the host itself that a pod may have."""

    @property
    def totals(self) -> HostTotals:
        """What the host as a whole can give, and what is requested of it."""

    def left(self, place: Place) -> int:
        """The units left of one of its inventories."""
