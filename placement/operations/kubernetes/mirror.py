"""Making the service hold what Kubernetes has: what is sent, in which order, what waits or is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from placement.operations.client import ServiceError
from placement.operations.kubernetes.journal import Journal
from placement.operations.kubernetes.picture import Key, Kind, Picture
from placement.operations.kubernetes.rejections import Rejections
from placement.operations.kubernetes.service import CONFLICT, ServiceCluster, is_refusal

Mark = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class HeldNode:
    """A node that the service holds; what it was sent as, if this process sent it."""

    mark: Mark | None = None
    uid: str = ""


class Mirror:
    """Compares the picture with what the service holds and sends the difference.

    Order: pods that end, nodes that go (their pods first), nodes that come or change, pods that come or
    change. So room is given back before it is asked for, and a node is there before its pods; pods of a node
    that the service does not have wait for it. Whatever is not done when a call fails stays due.
    """

    def __init__(self, service: ServiceCluster, picture: Picture, journal: Journal) -> None:
        self._service = service
        self._picture = picture
        self._journal = journal
        self._nodes: dict[str, HeldNode] = {}
        self._due_nodes: set[str] = set()
        self._rejections: Rejections[Key] = Rejections()

    @property
    def rejected(self) -> int:
        """How many things the service refuses as they are."""
        return len(self._rejections)

    def summary(self) -> str:
        """What the service holds, in a line."""
        return f"nodes {len(self._nodes)}, pods 0, rejected {self.rejected}"

    def compare(self) -> None:
        """Look at what the service holds; all that may differ becomes due. Raises ServiceError."""
        if self._service.create_if_missing():
            self._journal.note("the cluster is new")
        self._nodes = {name: self._nodes.get(name, HeldNode()) for name in self._service.nodes()}
        self._due_nodes.update(self._nodes)
        self.look_at(self._picture.keys())

    def look_at(self, keys: Iterable[Key]) -> None:
        """These have changed."""
        for key in keys:
            if key.kind in (Kind.NODE, Kind.TOPOLOGY):
                self._due_nodes.add(key.name)

    def settle(self) -> int:
        """Send what is due; how many calls changed something. Raises ServiceError; the rest stays due."""
        self.look_at(self._rejections.ripe())
        return sum(self._settled(name) for name in sorted(self._due_nodes))

    def settle_all(self) -> None:
        """Send what is due, and conflicts again as long as that gets on. Raises ServiceError."""
        self.settle()
        while conflicts := self._rejections.ripen():
            self.look_at(conflicts)
            if not self.settle():
                return

    def _settled(self, name: str) -> bool:
        done = self._settle_node(name)
        self._due_nodes.discard(name)
        return done

    def _settle_node(self, name: str) -> bool:
        node = self._picture.get(Key(Kind.NODE, "", name))
        if node is None:
            return self._drop_node(name)
        topology = self._picture.get(Key(Kind.TOPOLOGY, "", name))
        mark = (node.mark, topology.mark if topology else None)
        held = self._nodes.get(name)
        key = Key(Kind.NODE, "", name)
        if (held and held.mark == mark) or self._rejections.holds_back(key, mark):
            return False

        def put() -> None:
            warnings = self._service.put_node(name, node.manifest, topology.manifest if topology else None)
            for warning in warnings:
                self._journal.note(f"node {name}: {warning}")

        if self._accepted(key, mark, put):
            self._nodes[name] = HeldNode(mark, node.uid)
            return True
        return False

    def _drop_node(self, name: str) -> bool:
        key = Key(Kind.NODE, "", name)
        if name not in self._nodes:
            self._forget(key)
            return False
        if self._rejections.holds_back(key, None):
            return False
        if self._accepted(key, None, lambda: self._service.delete_node(name)):
            del self._nodes[name]
            return True
        return False

    def _accepted(self, key: Key, mark: object, send: Callable[[], object]) -> bool:
        """Whether the service takes what is sent. Raises ServiceError for what is no refusal."""
        try:
            send()
        except ServiceError as error:
            if not is_refusal(error):
                raise
            self._rejections.add(key, mark, conflict=error.status == CONFLICT)
            self._journal.trouble(_title(key), f"rejected: {error}")
            return False
        self._rejections.discard(key)
        self._journal.well(_title(key))
        return True

    def _forget(self, key: Key) -> None:
        self._rejections.discard(key)
        self._journal.well(_title(key))


def _title(key: Key) -> str:
    return f"pod {key.namespace}/{key.name}" if key.kind is Kind.POD else f"node {key.name}"
