"""The two names of a resource that is scored: Kubernetes' own and that of its resource class.

Scores of candidates are over resource classes, scores of pods over Kubernetes' names; both take either name.
"""

from __future__ import annotations

import re

from placement.dialects.koordinator.resources import class_names, host_class

_CLASS_OF = {"cpu": "VCPU", "memory": "MEMORY_MB"}
_CLASS = re.compile(r"[A-Z][A-Z0-9_]*")
_RESOURCE_OF = {**class_names(), "VCPU": "cpu"}


def is_class(name: str) -> bool:
    """Whether this is the name of a resource class rather than one that Kubernetes has."""
    return _CLASS.fullmatch(name) is not None


def class_of(name: str) -> str:
    """The class that candidates are scored by; a name that is one already stays."""
    core = _CLASS_OF.get(name.lower())
    if core is not None:
        return core
    return name if is_class(name) else host_class(name).name


def resource_of(name: str) -> str:
    """The Kubernetes name that pods are scored by; what is none of our own classes stays."""
    return _RESOURCE_OF.get(name, name)
