"""What a pod asks for beside its resources: bound volumes say where it may go, other things are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from placement.common.manifest import CHOOSE_GATE, Field, ManifestReport
from placement.pods.manifests.undecided import UNDECIDED
from placement.scheduling.pending import PendingPod
from placement.scheduling.tailoring import SelectorTerm
from placement.sync.api_server import CORE, ApiServer, object_path

# Where these are asked for, a node that seems right may be wrong. Other undecided things are noted.
_REFUSED = frozenset({"resource claim", "GPU share"})


class NotDecided(Exception):
    """The pod asks for something that the loop does not decide, or cannot yet."""


class Volumes:
    """The volumes of claims that are bound."""

    def __init__(self, api_server: ApiServer) -> None:
        self._api_server = api_server

    def terms(self, pod: PendingPod) -> list[Sequence[SelectorTerm]]:
        """Return for each volume the terms of nodes, one of which a node must meet; none for most pods.

        Raises NotDecided naming what is not decided, ApiServerError.
        """
        _refuse_undecided(pod.manifest)
        found = []
        for volume in pod.manifest["spec"].get("volumes") or ():
            claim = volume.get("persistentVolumeClaim")
            if claim is not None:
                terms = self._terms(pod.id.namespace, str(claim.get("claimName")))
                if terms:
                    found.append(terms)
            elif volume.get("ephemeral") is not None:
                raise NotDecided(_text(f"the claim of the ephemeral volume {volume.get('name')}"))
        return found

    def _terms(self, namespace: str, name: str) -> Sequence[SelectorTerm]:
        """Return the terms of one claim; it is read each time, as another volume may have its name by now."""
        claims = object_path(CORE, "namespaces", namespace, "persistentvolumeclaims")
        claim = self._api_server.get(object_path(claims, name))
        if claim is None:
            raise NotDecided(f'persistentvolumeclaim "{name}" not found')
        volume_name = (claim.get("spec") or {}).get("volumeName")
        if not volume_name or (claim.get("status") or {}).get("phase") != "Bound":
            raise NotDecided(_text(f'the persistentvolumeclaim "{name}", which is not bound'))
        volume = self._api_server.get(object_path(f"{CORE}/persistentvolumes", volume_name))
        if volume is None:
            raise NotDecided(f'persistentvolume "{volume_name}" not found')
        affinity = (volume.get("spec") or {}).get("nodeAffinity") or {}
        return (affinity.get("required") or {}).get("nodeSelectorTerms") or ()


def _refuse_undecided(manifest: Mapping[str, Any]) -> None:
    root = Field("Pod", manifest, ManifestReport(), soft=True)
    for kind in UNDECIDED:
        if kind.what in _REFUSED:
            for each in kind.fields(root):
                raise NotDecided(_text(f"the {kind.what} in {each.place.field}"))


def _text(what: str) -> str:
    return (
        f"{what} is not decided by this scheduler: with the scheduling gate {CHOOSE_GATE} and "
        "the default scheduler the pod gets its CPUs here, and the rest there"
    )
