"""The passwords of databases: their sources, and how they stay secret."""

from __future__ import annotations

import logging
import os
import re
import stat
from pathlib import Path
from urllib.parse import quote

from placement.engine.domain.errors import PlacementError

_ROOT = 0


def is_open_to_others(status: os.stat_result) -> bool:
    """Return whether users other than its owner may use the file.

    A file of root that the group of this process may read is not open: Kubernetes mounts secrets this way for
    processes that are not root (fsGroup), and Debian keeps keys for its servers this way.
    """
    lent = stat.S_IRGRP if status.st_uid == _ROOT != os.geteuid() else 0
    return bool(status.st_mode & (stat.S_IRWXG | stat.S_IRWXO) & ~lent)


LOG = logging.getLogger(__name__)
_HIDDEN = re.compile(r"([?&][^=&]*password[^=&]*=)[^&]*", re.IGNORECASE)
_USER = re.compile(r"(?P<name>[^:/?#@]*)(?::(?P<password>[^@]*))?@")


def shown(url: str) -> str:
    """Return the URL of a database without user and passwords."""
    scheme, separator, rest = url.partition("://")
    return _HIDDEN.sub(r"\1***", f"{scheme}{separator}{rest.rpartition('@')[2]}")


def has_password(url: str) -> bool:
    """Return whether there is a password in the URL, before the host or in the query."""
    user = _USER.match(url.partition("://")[2])
    return bool(user and user["password"]) or _HIDDEN.search(url) is not None


def with_password_of(file: str, url: str) -> str:
    """Insert the password of a file into the URL. Raises PlacementError if it cannot be read or inserted."""
    if has_password(url):
        raise PlacementError(
            "[placement_database] connection has a password, and password_file names another: keep one"
        )
    scheme, separator, rest = url.partition("://")
    found = _USER.match(rest)
    user, place = (found["name"], rest[found.end() :]) if found else ("", rest)
    try:
        password = Path(file).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise PlacementError(f"[placement_database] password_file: {file}: {reason}") from None
    if not password:
        raise PlacementError(f"[placement_database] password_file: {file} is empty")
    return f"{scheme}{separator}{user}:{quote(password, safe='')}@{place}"


def warn_if_readable(file: str, what: str) -> None:
    """Log a warning if users other than the owner may read a file with a secret.

    It is used all the same: Kubernetes mounts secrets this way, in a container without other users.
    """
    try:
        open_to_others = is_open_to_others(Path(file).stat())
    except OSError:
        return
    if open_to_others:
        LOG.warning("%s: others than its owner may use %s in it; run `chmod 600` on it.", file, what)
