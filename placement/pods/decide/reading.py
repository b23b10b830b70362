"""The reading of pods: their identity, then each in the dialect that it uses, and like pods once.

Pods of one controller differ in their names and uids, and in much that says nothing about where they may go;
and an extender asks about the same pod several times. So what was read of a pod is remembered.
"""

from __future__ import annotations

import marshal
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from placement.common import pod_identity
from placement.common.manifest import ManifestError, ManifestReport
from placement.engine.domain.errors import BadRequest, RequestPlace, parameter
from placement.pods.decide.rules import RULES
from placement.pods.decide.rules.rule import Rule
from placement.pods.koordinator.pod import read_incoming, read_running
from placement.pods.manifests.pod import Pod, read_pod
from placement.pods.state.model import KubeletPolicy, PodSpec, ReservationTerms, RunningPod, SchedulerSettings

_NAMED = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_UID = re.compile(r"[!-~]{1,36}")
_NAMESPACE, _NAME = parameter("namespace"), parameter("name")
_METADATA = (
    "name",
    "namespace",
    "uid",
    "labels",
    "annotations",
    "ownerReferences",
    "deletionTimestamp",
    *pod_identity.SUCCESSION,
)
_STATUS = ("phase", "qosClass")
_UNNAMED = "unnamed"
_DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class PodDocument:
    """A Pod manifest with its namespace, name and uid filled in, reduced to what decides about the pod.

    With `keeps` it is the template of a reservation on these terms, which has no namespace. `host` is the
    node on which the pod runs, empty before it has one; `has_ended`: the pod is over.
    """

    manifest: Mapping[str, Any]
    namespace: str
    name: str
    uid: str
    consumer: str
    keeps: ReservationTerms | None = None
    host: str = ""
    has_ended: bool = False

    @classmethod
    def named(cls, cluster: str, namespace: str, name: str, pod: Mapping[str, Any]) -> PodDocument:
        """Return the manifest of the pod of this name; without a uid it gets one.

        Raises BadRequest naming the field for a name that is invalid or is not the one in the manifest.
        """
        check_name(_NAMESPACE, namespace)
        check_name(_NAME, name)
        metadata = _mapping(pod, "metadata")
        for where, text in (("namespace", namespace), ("name", name)):
            if metadata.get(where) not in (None, "", text):
                raise BadRequest(
                    f"{_short(metadata[where])} is not that of the path, {text!r}",
                    place=RequestPlace("Pod") / "metadata" / where,
                )
        given = metadata.get("uid")
        uid = checked_uid("Pod", given) if given else pod_identity.derived_uid(cluster, namespace, name)
        consumer = pod_identity.consumer_of(cluster, uid)
        filled = {**metadata, "namespace": namespace, "name": name, "uid": uid}
        status = _mapping(pod, "status")
        if status:
            status = {
                key: text for key, text in status.items() if key in _STATUS
            } | pod_identity.resize_status(pod)
        reduced = {
            "apiVersion": pod.get("apiVersion"),
            "kind": pod.get("kind"),
            "metadata": {key: filled[key] for key in _METADATA if key in filled},
            "spec": pod.get("spec"),
            "status": status,
        }
        spec = pod.get("spec")
        host = spec.get("nodeName") if isinstance(spec, Mapping) else None
        host, has_ended = (
            host if isinstance(host, str) else "",
            status.get("phase") in pod_identity.ENDED_PHASES,
        )
        return cls(reduced, namespace, name, uid, consumer, None, host, has_ended)

    @classmethod
    def whole(cls, cluster: str, pod: Mapping[str, Any]) -> PodDocument:
        """Return the manifest of a pod; it must have a name. Raises BadRequest naming the field."""
        metadata = _mapping(pod, "metadata")
        if not metadata.get("name"):
            raise BadRequest("is missing", place=RequestPlace("Pod") / "metadata" / "name")
        return cls.unnamed(cluster, pod)

    @classmethod
    def unnamed(cls, cluster: str, pod: Mapping[str, Any]) -> PodDocument:
        """Return the manifest of a pod that may have no name yet. Raises BadRequest naming the field."""
        return cls.named(cluster, namespace_of(pod), _text(pod, "name", _UNNAMED), pod)

    @property
    def full_name(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"


def namespace_of(pod: Mapping[str, Any]) -> str:
    """Return the namespace that the manifest of a pod names, or the default one. Raises BadRequest."""
    return _text(pod, "namespace", _DEFAULT_NAMESPACE)


def _text(pod: Mapping[str, Any], key: str, default: str) -> str:
    text = _mapping(pod, "metadata").get(key) or default
    if not isinstance(text, str):
        raise BadRequest(f"{_short(text)} must be a text", place=RequestPlace("Pod") / "metadata" / key)
    return text


def check_name(place: RequestPlace, text: str) -> None:
    """Raise BadRequest naming the place unless the text is a DNS name."""
    if not _NAMED.fullmatch(text):
        raise BadRequest(f"{_short(text)} is not a DNS name", place=place)


def checked_uid(kind: str, uid: object) -> str:
    """Return the canonical spelling of the uid of an object. Raises BadRequest naming the field."""
    if not isinstance(uid, str) or not _UID.fullmatch(uid):
        raise BadRequest(
            f"{_short(uid)} must be at most 36 printable characters",
            place=RequestPlace(kind) / "metadata" / "uid",
        )
    return pod_identity.canonical_uid(uid)


def _mapping(pod: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    if not isinstance(pod, Mapping):
        raise BadRequest("expected the manifest of a Pod")
    member = pod.get(key)
    if member is not None and not isinstance(member, Mapping):
        raise BadRequest("must be a mapping", place=RequestPlace("Pod") / key)
    return member or {}


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


# What a pod says, in the dialect that it uses.


class PodDialect(NamedTuple):
    """A dialect of manifests: whether a pod uses it, and its readers.

    Readers take the pod, the pod before an update, and the settings of the cluster. They raise ManifestError
    with all findings of the report, which is of the pod.
    """

    uses: Callable[[Pod], bool]
    incoming: Callable[[Pod, Pod | None, SchedulerSettings, ManifestReport], PodSpec]
    running: Callable[[Pod, Pod | None, SchedulerSettings, KubeletPolicy, ManifestReport], RunningPod]


# The first that a pod uses reads it; Koordinator reads all that are left.
DIALECTS = (PodDialect(lambda pod: True, read_incoming, read_running),)


_READING = tuple(rule for rule in RULES if type(rule).read is not Rule.read)


def _read_pod(
    document: Mapping[str, Any], old: Mapping[str, Any] | None, report: ManifestReport
) -> tuple[PodDialect, Pod, Pod | None]:
    pod = read_pod(document, report)
    before = None if old is None else read_pod(old, ManifestReport())
    return next(dialect for dialect in DIALECTS if dialect.uses(pod)), pod, before


def import_pod(
    document: Mapping[str, Any], settings: SchedulerSettings, old: Mapping[str, Any] | None = None
) -> PodSpec:
    """Return the demand of a parsed Pod under the settings of its cluster; `old` is the Pod before an update.

    Raises ManifestError with everything that is wrong: broken schema, contradictions, admission rules.
    """
    report = ManifestReport()
    dialect, pod, before = _read_pod(document, old, report)
    incoming = dialect.incoming(pod, before, settings, report)
    own = tuple((rule, rule.read(pod)) for rule in _READING)
    if not own:
        return incoming
    report.raise_findings()
    selection = replace(incoming.selection, own=own)
    return replace(incoming, selection=selection, warnings=report.warnings)


def import_running_pod(
    document: Mapping[str, Any],
    settings: SchedulerSettings,
    kubelet: KubeletPolicy,
    old: Mapping[str, Any] | None = None,
) -> RunningPod:
    """Return a parsed Pod as it is placed on a host with that kubelet; `old` is its former version.

    Raises ManifestError if its schema is broken or an update changes what must not change.
    """
    report = ManifestReport()
    dialect, pod, before = _read_pod(document, old, report)
    return dialect.running(pod, before, settings, kubelet, report)


_READINGS_KEPT = 512
_LONGEST_KEPT = 2**14
# The last format of marshal in which equal values are equal bytes, whatever else refers to them.
_PLAIN_FORMAT = 2

# Members by name, with what is read of each: all of it (None), members, or members of each element of a list.
_CONTAINERS: list[dict[str, Any]] = [
    {
        **dict.fromkeys(("name", "resources", "restartPolicy")),
        "ports": [dict.fromkeys(("hostPort", "containerPort", "protocol", "hostIP"))],
    }
]
_READ: dict[str, Any] = {
    "apiVersion": None,
    "kind": None,
    "metadata": dict.fromkeys(("namespace", "labels", "annotations")),
    "spec": {
        "affinity": None,
        "containers": _CONTAINERS,
        "hostNetwork": None,
        "initContainers": _CONTAINERS,
        "nodeName": None,
        "nodeSelector": None,
        "overhead": None,
        "priority": None,
        "resourceClaims": None,
        "resources": None,
        "schedulingGates": None,
        "schedulingGroup": None,
        "tolerations": None,
        "topologySpreadConstraints": None,
        "volumes": [dict.fromkeys(("persistentVolumeClaim", "ephemeral"))],
        "workloadRef": None,
    },
    "status": dict.fromkeys(("phase", "qosClass")),
}
# Only the presence of these matters.
_NAMES = {"name": "any", "uid": "any"}


def reading_of(document: Mapping[str, Any], settings: SchedulerSettings) -> PodSpec:
    """Return the result of `import_pod` for a Pod, remembered for equal ones; only to be read.

    It is read from the very bytes that are its key, and in these no two types look alike. So pods
    that differ in anything that is read never share it, as long as `what_is_read` leaves out none of that.
    Raises ManifestError, which is never remembered.
    """
    try:
        text = marshal.dumps(what_is_read(document), _PLAIN_FORMAT)
        if len(text) <= _LONGEST_KEPT:
            return _read(text, settings)
    except (ManifestError, ValueError):
        pass  # Errors are about the manifest as it came, and marshal knows only what JSON may hold.
    return import_pod(document, settings)


@lru_cache(_READINGS_KEPT)
def _read(text: bytes, settings: SchedulerSettings) -> PodSpec:
    return import_pod(marshal.loads(text), settings)


def what_is_read(document: Mapping[str, Any]) -> Any:
    """Return a Pod without what `import_pod` ignores; if it has both a name and a uid, with fixed ones."""
    read = _part(document, _READ)
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return read
    name, uid = metadata.get("name"), metadata.get("uid")
    is_named = isinstance(name, str) and isinstance(uid, str) and name and uid
    own = _NAMES if is_named else {"name": name, "uid": uid}
    return {**read, "metadata": {**read["metadata"], **own}}


def _part(value: Any, wanted: Any) -> Any:
    if isinstance(wanted, list) and isinstance(value, list):
        return [_part(element, wanted[0]) for element in value]
    if not isinstance(wanted, dict) or not isinstance(value, dict):
        return value
    # Keys must be texts, wherever they are.
    return {
        key: _part(member, wanted.get(key))
        for key, member in value.items()
        if key in wanted or not isinstance(key, str)
    }
