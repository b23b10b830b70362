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
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(;[^\r\n]*)?")
_TRAILER = re.compile(rb"[^\r\n]*")
_LINE_BREAK = b"\r\n"
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
        """Remove what belongs to the body from the buffer; these bytes, and whether the body ends there."""
        taken = bytes(buffer[: self.missing])
        del buffer[: len(taken)]
        self.missing -= len(taken)
        return taken, self.missing == 0


class Chunks:
    """Tells where a chunked body ends; gunicorn reads what is in it. Source: RFC 9112, section 7.1."""

    # How many bytes are missing is not known.
    missing = 0

    def __init__(self) -> None:
        self._data = 0
        self._data_ends = False
        self._trailers: int | None = None
        self._all_data = self._all_framing = 0

    def take(self, buffer: bytearray) -> tuple[bytes, bool]:
        """Remove the body with its framing from the buffer; these bytes, and whether the body ends there.

        Raises BadChunks.
        """
        taken = bytearray()
        while buffer and (piece := self._piece(buffer)) is not None:
            taken += piece
            del buffer[: len(piece)]
            if self._trailers is not None and piece == _LINE_BREAK:
                return bytes(taken), True
        return bytes(taken), False

    def _piece(self, buffer: bytearray) -> bytearray | None:
        """Data, the line break behind it, or a line, None while its end is missing."""
        if self._data:
            piece = buffer[: self._data]
            self._data -= len(piece)
            self._data_ends = not self._data
            return piece
        if self._data_ends:
            piece = buffer[: len(_LINE_BREAK)]
            if not _LINE_BREAK.startswith(piece):
                raise BadChunks("the data of a chunk does not end where its size says")
            if len(piece) < len(_LINE_BREAK):
                return None
            self._data_ends = False
            return piece
        return self._line(buffer)

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
        if not line.endswith(_LINE_BREAK):
            raise BadChunks("a line of a chunked body does not end as it must")
        if self._trailers is None:
            self._begin_chunk(line[: -len(_LINE_BREAK)])
            return line
        self._trailers += len(line)
        if self._trailers > _LONGEST_TRAILERS:
            raise BadChunks("the trailers of a chunked body are too long")
        if not _TRAILER.fullmatch(line[: -len(_LINE_BREAK)]):
            raise BadChunks("a trailer of a chunked body contains a line break")
        return line

    def _begin_chunk(self, line: bytearray) -> None:
        size = _SIZE.fullmatch(line)
        if size is None or len(line) > _LONGEST_SIZE_LINE:
            raise BadChunks("the size of a chunk is no hexadecimal number")
        self._data = int(size[1], 16)
        self._all_data += self._data
        if not self._data:
            self._trailers = 0


def framing_of(request: Request) -> Length | Chunks:
    """How to find the end of the body, as gunicorn has understood the head."""
    length: Any = getattr(request.body.reader, "length", None)
    return Chunks() if length is None else Length(length)
