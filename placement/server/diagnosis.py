"""What `placement config check` finds: the configuration, and the database and the files that it names."""

from __future__ import annotations

import datetime
import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from oslo_config import cfg

from placement.common.secrets import is_open_to_others
from placement.engine.domain.errors import PlacementError
from placement.http import policy_files
from placement.http.policy_files import PolicyRules
from placement.http.strategies.keystone import Keystone
from placement.http.strategies.token_middleware import ANSWER_SECONDS, NotSignedIn, TokenMiddleware
from placement.http.strategies.tokens import TokenEntry
from placement.http.worker.tls import TlsFiles
from placement.server import schema, settings
from placement.server.configuration_files import default_files
from placement.server.preparation import CALLERS, DATABASE, OPTIONS, RULES, TLS, examine
from placement.storage import schema as versions
from placement.storage.database import Database

OK, WARNING, ERROR = "ok", "warning", "error"
IDENTITY, MEMCACHED = "identity", "memcached"
_EXPIRES_SOON_DAYS = 30
# Records of changes carry the time of the database, ends of sessions and reservations the one of the service.
_CLOCKS_DIFFER_SECONDS = 2.0


class SettingFinding(NamedTuple):
    """A sentence on one subject, and how bad that is: OK, WARNING or ERROR."""

    severity: str
    subject: str
    sentence: str


def findings() -> Iterator[SettingFinding]:
    """Yield what is well and what is wrong. Raises PlacementError for a file that is no configuration."""
    loaded, results, problems = examine()
    for subject, sentence in problems:
        yield SettingFinding(ERROR, subject, sentence.removeprefix(f"{subject}: "))
    if OPTIONS not in dict(problems):
        files = ", ".join(default_files()) or "no file; the environment and defaults"
        yield SettingFinding(OK, OPTIONS, files)
    yield from (SettingFinding(WARNING, OPTIONS, sentence) for sentence in settings.ignored_options())
    for subject, describe in _DESCRIPTIONS.items():
        if subject in results:
            yield from (
                SettingFinding(each, subject, text) for each, text in describe(loaded, results[subject])
            )
    yield from _open_secrets(loaded)
    if isinstance(results.get(CALLERS), Keystone):
        yield from _of_identity(results[CALLERS].middleware)
    if DATABASE in results:
        yield from _of_database(results[DATABASE])


_Described = Iterator[tuple[str, str]]


def _of_callers(loaded: cfg.ConfigOpts, found: Sequence[TokenEntry] | Keystone) -> _Described:
    if isinstance(found, Keystone):
        yield OK, "tokens of OpenStack Identity, as [keystone_authtoken] says"
    elif loaded.api.auth_strategy == "token":
        yield OK, f"{len(found)} tokens in {loaded.api.tokens_file}"
    else:
        yield WARNING, "[api] auth_strategy noauth2 believes every caller; it is for development only"


def _of_rules(loaded: cfg.ConfigOpts, rules: PolicyRules) -> _Described:
    yield OK, policy_files.summary(rules)
    for sentence in policy_files.doubts(loaded, rules):
        yield WARNING, sentence


def _of_tls(_: cfg.ConfigOpts, tls: Any) -> _Described:
    if tls is None:
        yield OK, "TLS is not spoken"
        return
    try:
        expires = _expiry(tls.files)
    except ssl.SSLError as error:
        yield ERROR, f"{tls.files.certificate}: {getattr(error, 'verify_message', '') or error.reason}"
        return
    days = int((expires - time.time()) // datetime.timedelta(days=1).total_seconds())
    at = datetime.datetime.fromtimestamp(expires, datetime.UTC).date().isoformat()
    severity = WARNING if days < _EXPIRES_SOON_DAYS else OK
    yield severity, f"{tls.files.certificate} is valid until {at}, for {days} days"


_DESCRIPTIONS: Mapping[str, Callable[[cfg.ConfigOpts, Any], _Described]] = {
    CALLERS: _of_callers,
    RULES: _of_rules,
    TLS: _of_tls,
}


def _expiry(files: TlsFiles) -> float:
    """Return when the certificate expires, in seconds since 1970, from a handshake with itself.

    Raises SSLError if it is not valid at present.
    """
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(files.certificate, files.key)
    client_side = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_side.check_hostname = False
    # Whatever authority signed it, this certificate is trusted here.
    client_side.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client_side.load_verify_locations(files.certificate)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_side.wrap_bio(back, there)
    server = server_side.wrap_bio(there, back, server_side=True)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    certificate: Any = client.getpeercert()
    return ssl.cert_time_to_seconds(certificate["notAfter"])


def _open_secrets(loaded: cfg.ConfigOpts) -> Iterator[SettingFinding]:
    for file, what in settings.files_with_secrets(loaded):
        if Path(file).is_file() and is_open_to_others(Path(file).stat()):
            sentence = f"{file}: others than its owner may use {what} in it; run `chmod 600` on it"
            yield SettingFinding(WARNING, "secrets", sentence)


def _of_identity(middleware: TokenMiddleware) -> Iterator[SettingFinding]:
    """Yield whether Identity lets the service sign in, and each memcached of its tokens that is silent."""
    try:
        middleware.sign_in(ANSWER_SECONDS)
        yield SettingFinding(OK, IDENTITY, f"signed in at {middleware.address}")
    except NotSignedIn as error:
        yield SettingFinding(ERROR, IDENTITY, str(error))
    silent = list(middleware.silent_caches())
    for server in silent:
        sentence = f"{server} does not answer; Identity is then asked about each token that is not remembered"
        yield SettingFinding(WARNING, MEMCACHED, sentence)
    if middleware.caches and not silent:
        yield SettingFinding(OK, MEMCACHED, f"{', '.join(middleware.caches)} answers")


def _of_database(connection: str) -> Iterator[SettingFinding]:
    try:
        with schema.opened(connection) as database:
            if not database.backend.exists():
                yield _of_new_file(database)
                return
            version = versions.version(database)
            yield SettingFinding(OK, DATABASE, database.where)
            yield _of_schema(database, version)
            yield from _of_clock(database)
    except PlacementError as error:
        yield SettingFinding(ERROR, DATABASE, str(error))


def _of_new_file(database: Database) -> SettingFinding:
    parents = Path(str(database.engine.url.database)).resolve().parents
    folder = next(each for each in parents if each.exists())
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        return SettingFinding(ERROR, DATABASE, f"{database.where}: {folder} cannot be written")
    return SettingFinding(WARNING, DATABASE, f"{database.where}: it is made when the service starts")


def _of_schema(database: Database, version: str | None) -> SettingFinding:
    newest = versions.newest(database)
    if database.backend.is_embedded and version != newest and not versions.is_newer(database):
        return SettingFinding(
            OK, "schema", f"version {version}; the start of the service brings it to {newest}"
        )
    try:
        schema.require(database)
    except schema.SchemaOutdated as error:
        return SettingFinding(ERROR, "schema", str(error))
    return SettingFinding(OK, "schema", f"version {version}")


def _of_clock(database: Database) -> Iterator[SettingFinding]:
    """Yield how far the clock of the database is from the one here; an embedded one has no clock."""
    if database.backend.is_embedded:
        return
    apart = database.seconds_apart()
    severity = WARNING if abs(apart) > _CLOCKS_DIFFER_SECONDS else OK
    yield SettingFinding(severity, "clock", f"the database is {apart:+.1f} s from this machine")
