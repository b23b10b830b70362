"""TLS for the connections of a worker: certificate, key, and the authority of client certificates."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from placement.common.secrets import is_open_to_others
from placement.engine.domain.errors import PlacementError

LOG = logging.getLogger(__name__)
_LOOK_EVERY_SECONDS = 5.0
_RECORD_BYTES = 16 * 1024
_OTHER_KEY = "KEY_VALUES_MISMATCH"


class TlsFiles(NamedTuple):
    """The paths of certificate and key, and of the authority of clients if they must have certificates."""

    certificate: str
    key: str
    client_authority: str | None = None


class Tls:
    """A wrapper of accepted connections that uses replaced files for later connections."""

    def __init__(self, files: TlsFiles) -> None:
        """Read the files. Raises PlacementError naming the file that is of no use."""
        self.files = files
        self._looked = time.monotonic()
        self.renew()

    def renew(self) -> None:
        """Read the files anew. Raises PlacementError; then what was read before stays in use."""
        self._seen = [_stamp(file) for file in self.files]
        self._context = _context(self.files)

    def wrap(self, wire: socket.socket) -> socket.socket:
        """Return the connection, encrypted; it shakes hands at its first receive. Raises OSError."""
        now = time.monotonic()
        if now - self._looked >= _LOOK_EVERY_SECONDS:
            self._looked = now
            if [_stamp(file) for file in self.files] != self._seen:
                try:
                    self.renew()
                    LOG.info("the certificate in %s was replaced", self.files.certificate)
                except PlacementError as error:
                    LOG.error("%s; the certificate of before stays in use.", error)
        return self._context.wrap_socket(wire, server_side=True, do_handshake_on_connect=False)


class Wire(ssl.SSLSocket):
    """An encrypted connection that behaves as a plain one that does not block."""

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """Return what has arrived; a `buflen` of a record leaves nothing decrypted behind. Raises OSError."""
        try:
            return super().recv(buflen, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError from error

    def sendmsg(self, buffers: Any, *_: object) -> int:  # type: ignore[override]
        """Send at most a record, and return how many bytes. A retry begins with these and is no shorter.

        OpenSSL counts nothing of a longer text before all of it is sent. Raises OSError.
        """
        taken, size = [], 0
        for buffer in buffers:
            taken.append(buffer[: _RECORD_BYTES - size])
            size += len(taken[-1])
            if size >= _RECORD_BYTES:
                break
        return self.send(b"".join(taken))

    def send(self, data: Any, flags: int = 0) -> int:
        """Send some of it, and return how many bytes. Raises OSError."""
        try:
            return super().send(data, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError from error

    def shutdown(self, how: int) -> None:
        """Tell the client that nothing more comes. Raises OSError."""
        # Without a handshake this fails, and the client's own close_notify is not waited for.
        with suppress(OSError, ValueError):
            self.unwrap()
        super().shutdown(how)


def is_stranger(wire: socket.socket) -> bool:
    """Return whether the client had to show a certificate and has shown none."""
    if not isinstance(wire, ssl.SSLSocket) or wire.context.verify_mode == ssl.CERT_NONE:
        return False
    return not wire.getpeercert()


def _stamp(file: str | None) -> tuple[int, int] | None:
    """Return a value that changes with the content, the file or its mode; None if it is missing."""
    try:
        status = os.stat(file or "")
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns


def _context(files: TlsFiles) -> ssl.SSLContext:
    """Return a context for the files. Raises PlacementError."""
    for file in filter(None, files):
        try:
            Path(file).read_bytes()
        except OSError as error:
            raise PlacementError(f"TLS: {file}: {error.strerror}") from None
    if is_open_to_others(Path(files.key).stat()):
        raise PlacementError(
            f"TLS: {files.key}: others than its owner may read this key; run `chmod 600` on it"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslsocket_class = Wire
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(files.certificate, files.key, password=_refuse_encrypted)
    except ssl.SSLError as error:
        raise PlacementError(f"TLS: {_complaint(files, error)}") from None
    if files.client_authority:
        try:
            context.load_verify_locations(files.client_authority)
        except ssl.SSLError:
            raise PlacementError(
                f"TLS: {files.client_authority}: there is no PEM certificate of an authority in it"
            ) from None
        # Probes have none; other clients without are refused later.
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _refuse_encrypted(*_: Any) -> str:
    raise PlacementError(
        "TLS: the key needs a password; give one that is not encrypted, readable by its owner only"
    )


def _complaint(files: TlsFiles, error: ssl.SSLError) -> str:
    if error.reason == _OTHER_KEY:
        return f"{files.key} is not the key of the certificate in {files.certificate}"
    for file, wanted in ((files.certificate, b"CERTIFICATE-----"), (files.key, b"PRIVATE KEY-----")):
        if wanted not in Path(file).read_bytes():
            return f"{file}: there is no PEM block {wanted.decode().rstrip('-')} in it"
    return f"{files.certificate}, {files.key}: {error.reason or error}"
