"""What a pod asks for that is not decided here, in one table: another scheduler has to look at it.

A pod that asks for such a thing may get a place where it cannot run. So it is named in warnings and answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from placement.common.gang import POD_GROUP, read_gang
from placement.common.manifest import (
    Field,
    Manifest,
    ManifestError,
    ManifestReport,
    QuantityError,
    parse_quantity,
)
from placement.common.pod_groups import POD_GROUP_KINDS
from placement.engine.domain.errors import Finding

_QUOTA = "quota.scheduling.koordinator.sh/name"
NETWORK_TOPOLOGY = "network-topology-spec"
_NETWORK_TOPOLOGIES = tuple(
    f"{prefix}scheduling.koordinator.sh/{NETWORK_TOPOLOGY}" for prefix in ("", "gang.")
)
# How much of each resource is a whole GPU.
_WHOLE_GPU = {
    **dict.fromkeys(
        ("koordinator.sh/gpu", "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio"), 100
    ),
    **dict.fromkeys(("nvidia.com/gpu", "amd.com/gpu"), 1),
}
_GPU_SHARED = "koordinator.sh/gpu.shared"


class Undecided(NamedTuple):
    """A thing that is not decided here: its kind, and where the manifest asks for it, as a JSON Pointer."""

    what: str
    where: str


class UndecidedKind(NamedTuple):
    """A kind of things that are not decided: why, and the fields of a manifest that ask for it."""

    what: str
    why: str
    fields: Callable[[Field], Iterator[Field]]


def _present(*fields: Field) -> Iterator[Field]:
    """Yield the fields that have a value which says anything."""
    yield from (each for each in fields if each.value not in (None, "", [], {}))


def _volume_claims(pod: Field) -> Iterator[Field]:
    for volume in pod.member("spec").member("volumes").elements():
        yield from _present(volume.member("persistentVolumeClaim"))
        # Kubernetes makes a claim of it; it may be empty.
        if volume.member("ephemeral").value is not None:
            yield volume.member("ephemeral")


def _containers(pod: Field) -> Iterator[Field]:
    spec = pod.member("spec")
    yield from spec.member("initContainers").elements()
    yield from spec.member("containers").elements()


def _of_spec(*names: str) -> Callable[[Field], Iterator[Field]]:
    return lambda pod: _present(*(pod.member("spec").member(name) for name in names))


def _quotas(pod: Field) -> Iterator[Field]:
    return _present(Manifest(pod).label(_QUOTA))


def _is_in_gang(pod: Field) -> bool:
    """Return whether a pod says how many members there must be, so that it is placed together with them."""
    namespace = pod.member("metadata").member("namespace").text() or ""
    return read_gang(Manifest(pod.reported_to(ManifestReport())), namespace) is not None


def _pod_groups(pod: Field) -> Iterator[Field]:
    manifest = Manifest(pod)
    if not _is_in_gang(pod):
        for kind in POD_GROUP_KINDS:
            yield from _present(*map(manifest.label, kind.labels))
            yield from _present(*map(manifest.annotation, kind.annotations))


def _scheduling_groups(pod: Field) -> Iterator[Field]:
    spec = pod.member("spec")
    if not _is_in_gang(pod):
        yield from _present(spec.member("schedulingGroup"))
    yield from _present(spec.member("workloadRef"))


def _network_topologies(pod: Field) -> Iterator[Field]:
    return _present(*map(Manifest(pod).annotation, _NETWORK_TOPOLOGIES))


def _gpu_shares(pod: Field) -> Iterator[Field]:
    for container in (*_containers(pod), pod.member("spec")):
        resources = container.member("resources")
        limits, requests = (resources.member(name).members() for name in ("limits", "requests"))
        for name, amount in {**limits, **requests}.items():
            if name == _GPU_SHARED or _is_share(name, amount.value):
                yield amount


def _is_share(name: str, value: Any) -> bool:
    """Return whether the amount of a resource is no number of whole GPUs."""
    try:
        return name in _WHOLE_GPU and (parse_quantity(str(value).strip()) / _WHOLE_GPU[name]).denominator != 1
    except QuantityError:
        return False


UNDECIDED = (
    UndecidedKind("volume claim", "which nodes its volume can be on", _volume_claims),
    UndecidedKind(
        "resource claim", "which nodes have the devices that it claims", _of_spec("resourceClaims")
    ),
    UndecidedKind("scheduling gate", "whether the pod may be placed yet", _of_spec("schedulingGates")),
    UndecidedKind(
        "scheduling group",
        "which pods it is placed together with; it is placed alone",
        _scheduling_groups,
    ),
    UndecidedKind("quota", "whether the quota has as much left", _quotas),
    UndecidedKind("pod group", f"{POD_GROUP} {{}} is not known here; the pod is placed alone", _pod_groups),
    UndecidedKind("network topology", "how near to each other the pods of its gang are", _network_topologies),
    UndecidedKind(
        "GPU share", "whether one GPU has this share; the GPUs of a node are added up", _gpu_shares
    ),
)
"""The only list of what is not decided; documented in docs/koordinator.md."""


def read_undecided(pod: Field) -> tuple[Undecided, ...]:
    """Return what a pod asks for that is not decided here; there is a warning for each, at its field.

    The manifest may be anything: what has another type than Kubernetes has there is reported to the field.
    """
    found = []
    for kind in UNDECIDED:
        for each in kind.fields(pod):
            is_named = "{}" in kind.why
            each.warn(kind.why.format(each.value) if is_named else f"not decided here: {kind.why}")
            found.append(Undecided(kind.what, each.place.field))
    return tuple(found)


def refuse_undecided(document: Mapping[str, Any]) -> None:
    """Raise ManifestError naming each field by which a pod asks for what is not decided here."""
    pod = Field("Pod", document, ManifestReport(), soft=True)
    findings = [
        Finding(f"{kind.what}s are not decided here, and the request is strict", each.place)
        for kind in UNDECIDED
        for each in kind.fields(pod)
    ]
    if findings:
        raise ManifestError(findings)
