"""A request as it was received, handed to gunicorn's parser."""

from __future__ import annotations

import re
import tempfile
from contextlib import suppress
from typing import IO, Any

from gunicorn.http.message import Request
from gunicorn.http.unreader import Unreader

# As gunicorn reads from a socket: what follows in a piece is copied once for each chunk in it.
_PIECE, _LARGEST_PIECE = 8 * 1024, 2**20
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(;.*)?")
_LONGEST_SIZE_LINE = 4096
_LONGEST_TRAILERS = 32 * 1024
# Chunks of a byte each would cost more to read than anything that is done with them.
_FREE_FRAMING, _DATA_PER_FRAMING = 64 * 1024, 16


class BadChunks(Exception):
    """A chunked body is not framed as HTTP has it."""


class Received(Unreader):  # type: ignore[misc]
    """What gunicorn reads instead of a socket: the head, then the body as far as it was received."""

    def __init__(self, head: bytes, in_memory_bytes: int) -> None:
        super().__init__()
        self._head = head
        self._body: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=in_memory_bytes)  # noqa: SIM115
        self.size = len(head)
        self.body_size = 0

    def append(self, data: bytes) -> None:
        """Keep a piece of the body. Raises OSError if the temporary file cannot be written."""
        self._body.write(data)
        self.size += len(data)
        self.body_size += len(data)

    def complete(self) -> None:
        """The whole body is there and may be read."""
        self._body.seek(0)

    def chunk(self, size_hint: int | None = None) -> bytes:
        """The next piece, empty at the end."""
        if self._head:
            head, self._head = self._head, b""
            return head
        return self._body.read(min(max(size_hint or 0, _PIECE), _LARGEST_PIECE))

    def close(self) -> None:
        """Forget everything."""
        # What the temporary file has no room for is not wanted any more.
        with suppress(OSError):
            self._body.close()


class Length:
    """Tells where a body of known length ends."""

    def __init__(self, size: int) -> None:
        self.missing = size

    def take(self, buffer: bytearray) -> tuple[bytes, bool]:
        """What of the buffer belongs to the body, removed from it, and whether the body ends there."""
        taken = bytes(buffer[: self.missing])
        del buffer[: len(taken)]
        self.missing -= len(taken)
        return taken, self.missing == 0


class Chunks:
    """Tells where a chunked body ends; gunicorn reads what is in it. Source: RFC 9112, section 7.1."""

    # Nobody knows.
    missing = 0

    def __init__(self) -> None:
        self._data = 0
        self._trailers: int | None = None
        self._all_data = self._all_framing = 0

    def take(self, buffer: bytearray) -> tuple[bytes, bool]:
        """What of the buffer belongs to the body, framing included, and whether the body ends there.

        Raises BadChunks.
        """
        taken = bytearray()
        while buffer:
            if self._trailers is None and self._data:
                piece = buffer[: self._data]
                self._data -= len(piece)
            else:
                line = self._line(buffer)
                if line is None:
                    break
                piece = line
            taken += piece
            del buffer[: len(piece)]
            if self._trailers is not None and piece == b"\r\n":
                return bytes(taken), True
        return bytes(taken), False

    def _line(self, buffer: bytearray) -> bytearray | None:
        """The line at the beginning of the buffer, None while its end is missing."""
        end = buffer.find(b"\n")
        if end < 0:
            if len(buffer) > _LONGEST_SIZE_LINE:
                raise BadChunks("a line of a chunked body is too long")
            return None
        line = buffer[: end + 1]
        self._all_framing += len(line)
        if self._all_framing > _FREE_FRAMING + self._all_data // _DATA_PER_FRAMING:
            raise BadChunks("the chunks are too small")
        if self._trailers is not None:
            self._trailers += len(line)
            if self._trailers > _LONGEST_TRAILERS:
                raise BadChunks("the trailers of a chunked body are too long")
            return line
        size = _SIZE.fullmatch(line[:-2]) if line.endswith(b"\r\n") else None
        if size is None or end > _LONGEST_SIZE_LINE:
            raise BadChunks("the size of a chunk is no hexadecimal number")
        length = int(size[1], 16)
        if length == 0:
            self._trailers = 0
        else:
            # The line break after the data belongs to it; gunicorn looks at it.
            self._data = length + 2
            self._all_data += length
        return line


def framing_of(request: Request) -> Length | Chunks:
    """How to find the end of the body, as gunicorn has understood the head."""
    length: Any = getattr(request.body.reader, "length", None)
    return Chunks() if length is None else Length(length)
