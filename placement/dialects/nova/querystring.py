"""The query string of `GET /allocation_candidates`, and the lowest microversion that understands it."""

from __future__ import annotations

import re
from urllib.parse import urlencode

from placement.dialects.nova.groups import BASE
from placement.dialects.nova.request import Request

_PLAIN_NUMBER = re.compile(r"[1-9][0-9]*")

# Minor versions of the Placement API, by the feature that came with them.
_RESOURCES = 10
_LIMIT = 16
_REQUIRED = 17
_FORBIDDEN = 22
_GRANULAR = 25
_TEXT_SUFFIXES = 33
_ROOT_REQUIRED = 35
_SAME_SUBTREE = 36


def query_string(request: Request, limit: int | None) -> str:
    """The form-encoded query: pairs sorted as text, entries of each value sorted as text.

    Source: nova-flavors.md, "The query string".
    """
    pairs = [("same_subtree", ",".join(suffixes)) for suffixes in request.same_subtree]
    if limit is not None:
        pairs.append(("limit", str(limit)))
    if request.group_policy is not None:
        pairs.append(("group_policy", request.group_policy))
    if request.root_required:
        pairs.append(("root_required", ",".join(request.root_required)))
    for suffix, group in request.groups.items():
        amounts = sorted(f"{name}:{amount}" for name, amount in group.resources.items())
        pairs.append((f"resources{suffix}", ",".join(amounts)))
        if group.traits:
            pairs.append((f"required{suffix}", ",".join(group.traits)))
    return urlencode(sorted(pairs))


def minimum_microversion(request: Request, limit: int | None) -> str:
    """The lowest microversion, such as `1.25`, that takes every parameter of the query.

    Source: placement-api.md, "Query grammar".
    """
    groups = request.groups.values()
    suffixes = [suffix for suffix in request.groups if suffix != BASE]
    features = (
        (_RESOURCES, True),
        (_LIMIT, limit is not None),
        (_REQUIRED, any(group.required for group in groups)),
        (_FORBIDDEN, any(group.forbidden for group in groups)),
        (_GRANULAR, bool(suffixes) or request.group_policy is not None),
        (_TEXT_SUFFIXES, not all(map(_PLAIN_NUMBER.fullmatch, suffixes))),
        (_ROOT_REQUIRED, bool(request.root_required)),
        (_SAME_SUBTREE, bool(request.same_subtree)),
    )
    return f"1.{max(minor for minor, used in features if used)}"
