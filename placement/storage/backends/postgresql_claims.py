"""Claims of consumers that must be new, decided and committed by PostgreSQL in one round trip.

A statement does what the steps of a claim do one after another, under the same locks in the same order:
consumers, then providers, both ascending; the statement for a pod locks the host first. It takes place as a
whole or fails as a whole; the caller then finds out why, step by step.

`postgresql_claims.sql` beside this file has both statements, and says which conditions READ COMMITTED checks
again under a lock. Their parameter is one JSON document, an object of `placement.storage.claim_rows`; columns
are the fields there.
Source: PostgreSQL documentation, "Read Committed Isolation Level".
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg2.errors

from placement.storage import json_text
from placement.storage.backends.backend import SingleWrite, Stamped
from placement.storage.claim_rows import NewClaims, NewPod
from placement.storage.history import HISTORY_KEY
from placement.storage.tables import CONTENT, RISE_FITS


def claim(write: SingleWrite, claims: NewClaims, limits: str) -> bool:
    """Claim for new consumers (allocations.new_claims); return False if it does nothing.

    `limits` are statements that bound its time, empty for the usual bounds. Raises errors of the driver.
    """
    return _run("placement_claim_at_once", write, claims, limits) is not None


def place(write: SingleWrite, pod: NewPod, limits: str) -> Stamped | None:
    """Place a new pod on a node (pods.store.statements); return the stamps, None if that cannot be.

    `limits` as for `claim`. Raises errors of the driver.
    """
    row = _run("placement_place_at_once", write, pod, limits)
    if row is None:
        return None
    server = str(write.info[HISTORY_KEY])
    return Stamped(row[0], server, frozenset((id_, stamp) for id_, stamp in row[1]))


_PART = re.compile(r"\b(\w+) AS \(\n(.*?)\n\)", re.DOTALL)
_ABOVE = re.compile(r"\b(\w+) AS \(:ABOVE\n\)")


def _statements() -> str:
    """Return both statements, whole."""
    text = Path(__file__).with_suffix(".sql").read_text()
    above = dict(_PART.findall(text[: text.index("(:ABOVE")]))
    whole = _ABOVE.sub(lambda part: f"{part[1]} AS (\n{above[part[1]]}\n)", text)
    return whole.replace(":RISE_FITS", RISE_FITS).replace(":CONTENT", CONTENT)


STATEMENTS = _statements()
# Prepared once per connection: planning them would cost more than running them. A pooler may have given the
# session to another client before.
_PREPARE = f"DEALLOCATE ALL; {STATEMENTS}"
_ARE_PREPARED = "placement_claims_are_prepared"


def _run(name: str, write: SingleWrite, claims: NewClaims, limits: str) -> Any:
    if name in write.info:
        return _sent(name, write, claims, limits)
    if _ARE_PREPARED not in write.info:
        write.prepare(_PREPARE)
        write.info[_ARE_PREPARED] = True
    # The plan is made now and kept, so it must not depend on the present size of the tables.
    write.prepare("SET enable_seqscan = off")
    try:
        row = _sent(name, write, claims, limits)
    finally:
        if not write.connection.closed:
            write.prepare("RESET enable_seqscan")
    write.info[name] = True
    return row


def _sent(name: str, write: SingleWrite, claims: NewClaims, limits: str) -> Any:
    """Return the row that the statement selects, None if it refuses: then its cast to a number fails."""
    # Statements of one message are one transaction, so the limits hold for the claim and for nothing else.
    statement = f"{limits}; EXECUTE {name}(%s)" if limits else f"EXECUTE {name}(%s)"
    try:
        return write.send(statement, (json_text.written(claims),))
    except psycopg2.errors.InvalidTextRepresentation:
        return None
