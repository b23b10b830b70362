"""PodGroups of all kinds: which one a pod names, and what it says about the gang of the pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from placement.common.gang import (
    GANG_GROUPS,
    GANG_MIN_AVAILABLE,
    GANG_MODE,
    GANG_NAME,
    GANG_TOTAL_NUMBER,
    GANG_WAITING_TIME,
    NUMBER_OF_PODS,
    POD_GROUP,
    POD_GROUP_LABEL,
    POD_GROUP_NAME,
    gang_of,
    number_of_pods,
)
from placement.common.manifest import Field, ManifestReport, shown

_DEFAULT_NAMESPACE = "default"
_LONGEST_TEXT = 60


class PodGroupKind(NamedTuple):
    """The PodGroups of one API group, and the labels or annotations by which a pod names one of them."""

    api_group: str
    version: str
    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """The apiVersion of their manifests."""
        return f"{self.api_group}/{self.version}"


_SIGS = PodGroupKind("scheduling.sigs.k8s.io", "v1alpha1", labels=(POD_GROUP_LABEL, POD_GROUP_NAME))
_VOLCANO = PodGroupKind(
    "scheduling.volcano.sh",
    "v1beta1",
    annotations=("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"),
)
# A pod names one in `spec.schedulingGroup`.
_NATIVE = PodGroupKind("scheduling.k8s.io", "v1alpha2")
POD_GROUP_KINDS = (
    _SIGS,
    PodGroupKind("scheduling.x-k8s.io", "v1alpha1", labels=("scheduling.x-k8s.io/pod-group",)),
    _VOLCANO,
    _NATIVE,
)
"""All kinds, in the order in which they count where a pod names several PodGroups.

Source: koordinator.md, "Gangs".
"""


class NamedPodGroup(NamedTuple):
    """The PodGroup that a pod names; it need not exist."""

    kind: PodGroupKind
    namespace: str
    name: str

    @property
    def title(self) -> str:
        """The PodGroup in a sentence."""
        return f"{POD_GROUP} {self.namespace}/{self.name} of {self.kind.api_group}"

    def stated(self, manifest: Mapping[str, Any]) -> dict[str, str]:
        """Return what its manifest says, as Koordinator's annotations of a pod.

        There is no minimum among them if it asks for none. A minimum that is not a number stays, as no pod
        may be placed as if there were none.
        """
        root = Field(POD_GROUP, manifest, ManifestReport(), soft=True)
        least = _least_of_policy(root) if self.kind is _NATIVE else _least_member(root)
        found = {} if least is None else {GANG_MIN_AVAILABLE: least}
        if self.kind is _SIGS:
            annotations = root.member("metadata").member("annotations")
            for key in (GANG_MODE, GANG_GROUPS, GANG_TOTAL_NUMBER):
                if text := annotations.member(key).text():
                    found[key] = text
        elif least is not None:
            # PodGroups of different kinds may have the same name. No name of a PodGroup has a slash.
            found[GANG_NAME] = f"{self.kind.api_group}/{self.name}"
        seconds = root.member("spec").member("scheduleTimeoutSeconds").value
        if seconds is not None:
            found[GANG_WAITING_TIME] = f"{_text_of(seconds)}s"
        return found

    def misstated(self, stated: Mapping[str, str], pod: Mapping[str, Any]) -> str | None:
        """Return why a pod that has this PodGroup cannot be of its gang, None if it can or need not be."""
        least = stated.get(GANG_MIN_AVAILABLE)
        if least is None or number_of_pods(least) is not None or gang_of(pod, self.namespace) is not None:
            return None
        return f"{self.title} asks for {least!r} members, not {NUMBER_OF_PODS}"


def _least_member(root: Field) -> str | None:
    least = root.member("spec").member("minMember").value
    # Programs in Go leave out 0, so the two mean the same.
    return None if least in (None, 0, "0") else _text_of(least)


def _least_of_policy(root: Field) -> str | None:
    policy = root.member("spec").member("schedulingPolicy")
    gang = policy.member("gang")
    if gang.value is None and policy.member("basic").value is not None:
        return None
    return _text_of(gang.member("minCount").value)


def _text_of(value: object) -> str:
    return value[:_LONGEST_TEXT] if isinstance(value, str) else shown(value)


def named_pod_group(pod: Mapping[str, Any]) -> NamedPodGroup | None:
    """Return the PodGroup that counts for a pod; None if it names none. The manifest may be anything.

    Koordinator's annotation with the name of a gang counts before PodGroups of other kinds.
    Source: koordinator.md, "Gangs".
    """
    metadata, spec = _mapping(pod.get("metadata")), _mapping(pod.get("spec"))
    labels, annotations = _mapping(metadata.get("labels")), _mapping(metadata.get("annotations"))
    namespace = metadata.get("namespace") or _DEFAULT_NAMESPACE
    if not isinstance(namespace, str):
        return None
    for kind in POD_GROUP_KINDS:
        names = [*map(labels.get, kind.labels), *map(annotations.get, kind.annotations)]
        if kind is _NATIVE:
            names.append(_mapping(spec.get("schedulingGroup")).get("podGroupName"))
        name = next(filter(None, names), None)
        if isinstance(name, str) and (kind is _SIGS or not annotations.get(GANG_NAME)):
            return NamedPodGroup(kind, namespace, name)
    return None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def annotated(pod: Mapping[str, Any], stated: Mapping[str, str]) -> Mapping[str, Any]:
    """Return a pod with the annotations that its PodGroup states; its own count before them.

    A pod with metadata or annotations that are not mappings stays as it is, to be refused.
    """
    metadata = pod.get("metadata")
    if not stated or not isinstance(metadata, Mapping):
        return pod
    annotations = metadata.get("annotations") or {}
    if not isinstance(annotations, Mapping):
        return pod
    return {**pod, "metadata": {**metadata, "annotations": {**stated, **annotations}}}


def pod_group_kind(manifest: Mapping[str, Any]) -> PodGroupKind | None:
    """Return the kind of a PodGroup, in whichever version; None if none is known with its apiVersion."""
    api_group = str(manifest.get("apiVersion")).partition("/")[0]
    return next((kind for kind in POD_GROUP_KINDS if kind.api_group == api_group), None)


def with_pod_groups(
    pods: Iterable[Mapping[str, Any]], groups: Iterable[tuple[PodGroupKind, Mapping[str, Any]]]
) -> list[Mapping[str, Any]]:
    """Return the pods with annotations about their gangs from the PodGroups that they name, of any kind."""
    by_name: dict[NamedPodGroup, Mapping[str, Any]] = {}
    for kind, manifest in groups:
        metadata = _mapping(manifest.get("metadata"))
        namespace, name = metadata.get("namespace") or _DEFAULT_NAMESPACE, metadata.get("name")
        if isinstance(namespace, str) and isinstance(name, str):
            by_name[NamedPodGroup(kind, namespace, name)] = manifest
    found = []
    for pod in pods:
        named = named_pod_group(pod)
        if named is not None and named in by_name:
            found.append(annotated(pod, named.stated(by_name[named])))
        else:
            found.append(pod)
    return found
