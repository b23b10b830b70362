"""Database URLs as people write them, and as the driver takes them."""

from __future__ import annotations

import re

import sqlalchemy as sa

from placement.engine.domain.errors import BadRequest

DRIVER = "postgresql+placement"
_SEVERAL = re.compile(
    r"(?P<scheme>[\w+]+)://(?:(?P<account>[^@/]*)@)?(?P<hosts>[^/?@]*,[^/?@]*)(?P<rest>[/?].*)?", re.DOTALL
)
_HOST = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]*)(?::(?P<port>\d*))?")
_STANDARD_PORT = "5432"
# Galera is reached like these two.
_IMPORTED = ("mysql", "mariadb")
_MOVING = (
    "; `placement import` copies a database of MySQL, MariaDB or Galera into one of these, "
    'see "From MySQL, MariaDB or Galera" in docs/moving.md'
)


def supported(url: str, parameters: str = "") -> sa.URL:
    """Return the URL of a SQLite or PostgreSQL database, with `parameters` appended to its query.

    Several hosts may be given as libpq writes them, `h1:p1,h2:p2`; then the one that takes writes is used,
    unless `target_session_attrs` says otherwise. Raises BadRequest.
    """
    found = _SEVERAL.fullmatch(url)
    try:
        parsed = _of_several(found) if found else sa.engine.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        # The cause is left out, as it may show the password.
        raise BadRequest("connection: the database URL cannot be understood") from None
    if parameters:
        parsed = parsed.update_query_string(parameters)
    if parsed.drivername in ("postgresql", "postgres", "postgresql+psycopg2"):
        parsed = parsed.set(drivername=DRIVER)
        if len(hosts_of(parsed)) > 1 and "target_session_attrs" not in parsed.query:
            return parsed.update_query_dict({"target_session_attrs": "read-write"})
        return parsed
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite", DRIVER):
        hint = _MOVING if parsed.get_backend_name() in _IMPORTED else ""
        raise BadRequest(
            f"connection: {parsed.drivername} is not supported, only sqlite and postgresql{hint}"
        )
    return parsed


def has_accounts(url: str) -> bool:
    """Return whether the database at this URL, as people write it, has users with passwords."""
    return url.partition("://")[0].startswith("postgres")


def _of_several(found: re.Match[str]) -> sa.URL:
    hosts = [_HOST.fullmatch(host) for host in found["hosts"].split(",")]
    if not all(hosts):
        raise ValueError("hosts")
    account = f"{found['account']}@" if found["account"] is not None else ""
    url = sa.engine.make_url(f"{found['scheme']}://{account}{found['rest'] or ''}")
    query = {
        "host": ",".join(host["host"].strip("[]") for host in hosts if host),
        "port": ",".join(host["port"] or _STANDARD_PORT for host in hosts if host),
    }
    return url.update_query_dict(query)


def hosts_of(url: sa.URL) -> list[str]:
    """Return the hosts of a server, perhaps with ports; none for the local socket and for files."""
    given = url.query.get("host", ())
    listed = [given] if isinstance(given, str) else list(given)
    named = [host for entry in listed for host in entry.split(",") if host]
    return named or ([url.host] if url.host else [])


def described_server(url: sa.URL) -> str:
    """Return which database of a server it is, for people: host, database, user; never a password."""
    port = url.port or url.query.get("port")
    ports = f" port {port}" if port else ""
    hosts = ",".join(hosts_of(url)) or "of the local socket"
    return f"host {hosts}{ports}, database {url.database}, user {url.username}"
