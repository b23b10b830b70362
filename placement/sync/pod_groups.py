"""What the PodGroups of Kubernetes say about the gangs of pods."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from placement.common.gang import gang_of
from placement.common.pod_groups import NamedPodGroup, annotated, named_pod_group
from placement.sync.informer_store import InformerStore
from placement.sync.watched_collections import title_of_pod_groups
from placement.sync.watched_objects import WatchedObject, key_of_named


class PodGroups:
    """The PodGroups of the store, of all kinds; any thread may ask for them.

    The service knows gangs by annotations of pods. So it gets each pod with what its PodGroup says.
    """

    def __init__(self, store: InformerStore) -> None:
        self._store = store

    def annotated(self, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the pod with what its PodGroup says as annotations; its own annotations count before them.

        A pod without a PodGroup, or with one that is not there, is returned as it is.
        """
        named = named_pod_group(manifest)
        watched = None if named is None else self._get(named)
        if named is None or watched is None:
            return manifest
        return annotated(manifest, named.stated(watched.manifest))

    def lacking(self, manifest: Mapping[str, Any]) -> str | None:
        """Return why a pod cannot be placed with its PodGroup: it is not there, or its minimum is no number.

        Return None if it names none, if the PodGroup asks for no gang, or if the pod itself says it all.
        """
        named = named_pod_group(manifest)
        if named is None:
            return None
        watched = self._get(named)
        if watched is not None:
            stated = named.stated(watched.manifest)
            return named.misstated(stated, annotated(manifest, stated))
        if gang_of(manifest, named.namespace) is not None:
            return None
        if self._store.is_lacking(title_of_pod_groups(named.kind)):
            return f"{named.title} is not there, and Kubernetes offers none of that kind"
        return f"{named.title} is not there"

    def mark(self, watched: WatchedObject) -> Hashable:
        """Return a mark of a pod and its PodGroup, which differs when one of the two has changed."""
        group = None if watched.group_key is None else self._store.get(watched.group_key)
        return watched.mark if group is None else (watched.mark, group.mark)

    def _get(self, named: NamedPodGroup) -> WatchedObject | None:
        return self._store.get(key_of_named(named))
