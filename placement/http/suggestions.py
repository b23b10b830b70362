"""What an unknown name was probably meant to be, of the names that the caller may see."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from flask import g, request

from placement.common.extender_protocol import verb_at
from placement.engine.domain.errors import Finding, NamesOf, PlacementError
from placement.engine.domain.identifiers import near
from placement.http.context import component

LOG = logging.getLogger(__name__)
_LONGEST = 255
# An answer about many things looks up the names of the first errors.
_MOST_LOOKED_UP = 5


@dataclass(frozen=True, slots=True)
class StoredNames:
    """The names in the database that are written almost like a word, the closest first.

    `app` has the look-up of pods/services/stored_names.py for it. It raises PlacementError, as for what the
    caller may not see.
    """

    like: Callable[[NamesOf, str], list[str]]


def meant_by(finding: Finding) -> list[str]:
    """Return the names that the unknown one in a finding was probably meant to be, the closest first."""
    # Programs remove what is gone already as a matter of course, and kube-scheduler puts errors into Events.
    is_read = request.method != "DELETE" and verb_at(request.path) is None
    is_name = finding.value.isprintable() and len(finding.value) <= _LONGEST
    if finding.known is None or not (is_name and is_read):
        return []
    if not isinstance(finding.known, NamesOf):
        return near(finding.value, finding.known())
    # Members of a claim repeat a name.
    meant = g.setdefault("placement_meant", {})
    asked = finding.known, finding.value
    if asked not in meant and len(meant) < _MOST_LOOKED_UP:
        try:
            meant[asked] = component(StoredNames).like(*asked)
        except PlacementError:
            meant[asked] = []
        except Exception:
            # The error is answered all the same.
            LOG.exception("no names could be suggested")
            meant[asked] = []
    # What exists may still be out of place, such as a host of another cluster.
    return [name for name in meant.get(asked, ()) if name != finding.value]
