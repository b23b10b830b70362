"""The answers of the scheduler extender to requests that fail: status 200, in the form of its verb.

Where the status is another, kube-scheduler writes the URL that it asked, with the token in it, into Events
and conditions of pods, and tenants read these. Errors of connections it writes without the token.
Source: kube-scheduler, pkg/scheduler/extender.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

FILTER, PRIORITIZE, PREEMPT, BIND = "filter", "prioritize", "preempt", "bind"
# A verb that does not exist counts: filterVerb may be misspelt. There may be a prefix, and a slash too many.
_PATH = re.compile(r"/ext/v1/clusters/[^/]*/+extender/+([^/]*)/*")


def verb_at(path: str) -> str | None:
    """Return the verb that a path asks the extender for, which may not exist; None for other paths."""
    start = path.find("/ext/")
    found = _PATH.fullmatch(path, start) if start >= 0 else None
    return None if found is None else found[1]


def failure(verb: str, message: str, nodes: Iterable[str] = ()) -> Any:
    """Return the answer of a verb that failed, as JSON: the message, or that no node is chosen.

    `nodes`: the nodes that were asked about. Source: k8s.io/kube-scheduler, extender/v1.
    """
    if verb == PRIORITIZE:
        return [{"Host": name, "Score": 0} for name in nodes]
    if verb == PREEMPT:
        return {"NodeNameToMetaVictims": {}}
    if verb == FILTER:
        without = ("Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes")
        return {**dict.fromkeys(without), "Error": message}
    return {"Error": message}
