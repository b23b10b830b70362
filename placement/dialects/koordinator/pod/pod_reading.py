"""Reading pods like those that were read before.

Pods of one controller differ in their names and uids, and in much that says nothing about where they may go;
and an extender asks about the same pod several times.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from placement.dialects.koordinator.pod.pod_request import PodImport, import_pod
from placement.dialects.koordinator.settings.settings import SchedulerSettings
from placement.kubernetes.errors import ManifestError

_READINGS_KEPT = 512
_LONGEST_KEPT = 2**14
# The last format of marshal in which equal values are equal bytes, whoever else refers to them.
_PLAIN_FORMAT = 2

# Members by name, with what is read of each: all of it (None), members, or members of each element of a list.
_CONTAINERS = [dict.fromkeys(("name", "resources", "restartPolicy"))]
_READ: dict[str, Any] = {
    "apiVersion": None,
    "kind": None,
    "metadata": dict.fromkeys(("namespace", "labels", "annotations")),
    "spec": {
        "affinity": None,
        "containers": _CONTAINERS,
        "initContainers": _CONTAINERS,
        "nodeName": None,
        "nodeSelector": None,
        "overhead": None,
        "priority": None,
        "resources": None,
        "tolerations": None,
        "topologySpreadConstraints": None,
    },
    "status": dict.fromkeys(("phase", "qosClass")),
}
# Of these it only matters that they are there.
_NAMES = {"name": "any", "uid": "any"}


def reading_of(document: Mapping[str, Any], settings: SchedulerSettings) -> PodImport:
    """What `import_pod` says of a Pod, remembered for others that say the same; only to be read.

    It is read of the very bytes by which it is found again, and in these no two types look alike. So pods
    that differ in anything that is read never share it, as long as `what_is_read` leaves out none of that.
    Raises ManifestError, which is never remembered.
    """
    try:
        text = marshal.dumps(what_is_read(document), _PLAIN_FORMAT)
        if len(text) <= _LONGEST_KEPT:
            return _read(text, settings)
    except (ManifestError, ValueError):
        pass  # Errors are told of the manifest as it came, and marshal knows only what JSON may hold.
    return import_pod(document, settings)


@lru_cache(_READINGS_KEPT)
def _read(text: bytes, settings: SchedulerSettings) -> PodImport:
    return import_pod(marshal.loads(text), settings)


def what_is_read(document: Mapping[str, Any]) -> Any:
    """A Pod without what `import_pod` does not look at; if it has a name and a uid, with those of any pod."""
    read = _part(document, _READ)
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return read
    own = {key: metadata.get(key) for key in _NAMES}
    named = all(isinstance(text, str) and text for text in own.values())
    return {**read, "metadata": {**read["metadata"], **(_NAMES if named else own)}}


def _part(value: Any, wanted: Any) -> Any:
    if isinstance(wanted, list) and isinstance(value, list):
        return [_part(element, wanted[0]) for element in value]
    if not isinstance(wanted, dict) or not isinstance(value, dict):
        return value
    # Keys that are no texts are errors wherever they are.
    return {
        key: _part(member, wanted.get(key))
        for key, member in value.items()
        if key in wanted or not isinstance(key, str)
    }
