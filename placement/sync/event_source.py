"""Events of Kubernetes, written by a component that has something to say about an object."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from placement.sync.api_server import ApiServer, ApiServerError, object_path

NOT_DECIDED = "NotDecided"
"""The reason of an Event about a pod that has its place: what it asks for that no rule looked at."""
_CONFLICT = 409
# Events of objects that are in no namespace are in this one.
_DEFAULT_NAMESPACE = "default"
_LONGEST_NAME = 200


class EventSource:
    """A component that reports Events."""

    def __init__(self, api_server: ApiServer, component: str) -> None:
        self._api_server = api_server
        self._component = component

    def write(self, reference: Mapping[str, Any], reason: str, text: str, kind: str) -> None:
        """Write an Event of the type `kind`, or count up the one that is there. Raises ApiServerError."""
        event = self._event(reference, reason, text, kind)
        collection = object_path("/api/v1", "namespaces", event["metadata"]["namespace"], "events")
        try:
            self._api_server.post(collection, event)
        except ApiServerError as error:
            if error.status != _CONFLICT:
                raise
            path = object_path(collection, event["metadata"]["name"])
            found = self._api_server.get(path)
            if found is not None:
                again = {"count": (found.get("count") or 0) + 1, "lastTimestamp": event["lastTimestamp"]}
                self._api_server.patch(path, again)

    def _event(self, reference: Mapping[str, Any], reason: str, text: str, kind: str) -> dict[str, Any]:
        """Return the Event; a repeated message about an object gets the same name."""
        shown = "\0".join([reference["kind"], reference["name"], reference.get("uid", ""), text])
        digest = hashlib.sha256(shown.encode()).hexdigest()[:16]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "namespace": reference.get("namespace") or _DEFAULT_NAMESPACE,
                "name": f"{reference['name'][:_LONGEST_NAME].rstrip('.-')}.{digest}",
            },
            "involvedObject": reference,
            "reason": reason,
            "message": text,
            "type": kind,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }


def reference_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ObjectReference of an object."""
    metadata = manifest["metadata"]
    # kubelet names nodes by their names in Events, and kubectl looks for that.
    uid = metadata["name"] if manifest["kind"] == "Node" else str(metadata.get("uid") or "")
    found = {
        "apiVersion": manifest["apiVersion"],
        "kind": manifest["kind"],
        "namespace": metadata.get("namespace"),
        "name": metadata["name"],
        "uid": uid,
        "resourceVersion": metadata.get("resourceVersion"),
    }
    return {name: value for name, value in found.items() if value}
