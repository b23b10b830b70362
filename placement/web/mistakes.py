"""What is wrong with a form: the message, the word in the text that is meant, and what is like it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from placement.engine.domain.errors import Finding, RequestPlace
from placement.http.query_grammar import OF_ALL, OF_GROUPS, OWN, SPLITS

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
# The parts of a body that a form spreads out.
_SPREAD = frozenset({"flavor", "world", "goal"})


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


def mistake(finding: Finding, form: Mapping[str, str], meant: Sequence[str] = ()) -> Mistake:
    """Return what is wrong with a form; `form` has the texts of its fields, `meant` names that are alike."""
    field = _field(finding.place)
    is_in_query = re.search(rf"(?:^|&){re.escape(field)}=", form.get("query", "")) is not None
    label = None if is_in_query else _LABELS.get(field)
    message = str(finding) if label is None else f"{label}: {finding.what}"
    name, text = _shown_in(field, form)
    span = _span(text, finding.value, finding.place.field)
    if span is None:
        return Mistake(message, field=name)
    start, end = span
    instead = meant[0] if meant else ""
    return Mistake(message, text[:start], text[start:end], text[end:], instead, field=name)


def is_of_query(parameter: str) -> bool:
    """Return whether a parameter belongs into the text of a query, as no field of a form is called so."""
    return _WITH_SUFFIX.fullmatch(parameter) is not None and parameter not in _LABELS


def _field(place: RequestPlace) -> str:
    """Return the name of the field of a form that has what stands at a place; empty if none has it."""
    if not place.is_pointer:
        return place.field
    steps = [step for step in place.field.split("/")[1:] if step not in _SPREAD]
    is_whole = len(steps) == 1 or (len(steps) == 2 and steps[1].isdecimal())
    return steps[0] if is_whole else ""


def _shown_in(field: str, form: Mapping[str, str]) -> tuple[str, str]:
    """Return the field of the form in which the value is, by its name, and its text."""
    # The page calls the hosts of a plan so.
    name = "hosts" if field == "empty" else field
    return (name, form[name]) if name in form and name != "query" else ("query", form.get("query", ""))


def _span(text: str, value: str, parameter: str) -> tuple[int, int] | None:
    """Return where in a text the wrong word stands: the value, else all that is given for the parameter."""
    if value:
        found = re.search(rf"(?<![\w.-]){re.escape(value)}(?![\w.-])", text)
        return found and found.span()
    found = re.search(rf"(?:^|&){re.escape(parameter)}=([^&]*)", text) if parameter else None
    return found and found.span(1)
