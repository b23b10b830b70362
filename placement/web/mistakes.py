"""What is wrong with a form: the message, the word in the text that is meant, and what is like it."""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches
from typing import NamedTuple

from placement.http.query_grammar import OF_ALL, OF_GROUPS, OWN, SPLITS

_WORD = re.compile(r"[A-Za-z_][\w-]*(?:\.[\w-]+)*|-?\d+(?:\.\d+)?")
_QUOTED = re.compile(r"'([\w.-]+)'")
_PARAMETERS = [each.name.removesuffix("{S}") for each in (*OF_GROUPS, *OF_ALL, *OWN, *SPLITS)]
_WITH_SUFFIX = re.compile(rf"(?:{'|'.join(_PARAMETERS)})[\w-]*")


# What the fields are called on the pages, by the names that messages begin with.
_LABELS = {
    "vcpus": "vCPUs",
    "ram": "Memory",
    "memory_mb": "Memory",
    "disk": "Disk",
    "root_gb": "Disk",
    "extra_specs": "Extra specs",
    "image": "Image properties",
    "limit": "Candidates, at most",
    "count": "Requests to fit",
    "free": "Hosts to free",
    "moves": "Moves, at most",
    "hosts": "Hosts to empty",
    "empty": "Hosts to empty",
    "without": "Without these hosts",
    "cluster": "Cluster",
    "order_by": "Best first by",
}
_PLACE = re.compile(r"(?:flavor\.|world\.|goal\.)?(\w+)(?:\[(\d+)\])?: ")


class Mistake(NamedTuple):
    """A message with the status that the API answers with.

    If it is about a `word` of the text in a field, `before` and `after` are the text around that. `instead`
    is the known word that is most like it, if one is.
    """

    message: str
    before: str = ""
    word: str = ""
    after: str = ""
    instead: str = ""
    status: int = 400
    field: str = "query"

    @property
    def corrected(self) -> str:
        """The text with the word that was meant."""
        return f"{self.before}{self.instead}{self.after}"


def mistake(message: str, text: str, names: Collection[str]) -> Mistake:
    """Return what is wrong with a query; `names` are the classes, traits and clusters that it may name."""
    # The parameters that there are, which follow, name nothing that is wrong.
    about = re.split("; there are |; did you mean ", message)[0]
    mentioned = set(_QUOTED.findall(about)) or set(_WORD.findall(about))
    words = [found for found in _WORD.finditer(text) if found[0] in mentioned]
    strange = [found for found in words if found[0] not in names and not _WITH_SUFFIX.fullmatch(found[0])]
    if not strange:
        return Mistake(message)
    found = strange[-1]
    before, after = text[: found.start()], text[found.end() :]
    is_parameter = after.startswith("=") and (not before or before.endswith("&"))
    like = get_close_matches(found[0], _PARAMETERS if is_parameter else names, 1)
    like = like or get_close_matches(found[0].upper(), () if is_parameter else names, 1)
    instead = like[0] if like else ""
    return Mistake(about if like else message, before, found[0], after, instead)


def is_of_query(parameter: str) -> bool:
    """Return whether a parameter belongs into the text of a query, as no field of a form is called so."""
    return _WITH_SUFFIX.fullmatch(parameter) is not None and parameter not in _LABELS


def in_field(message: str) -> str:
    """Return a message with the name of its field as pages have it in place of the one that the API has."""
    place = _PLACE.match(message)
    if place is None or place[1] not in _LABELS:
        return message
    return f"{_LABELS[place[1]]}: {message[place.end() :]}"
