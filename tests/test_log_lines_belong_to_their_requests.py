"""Threads that serve several requests in turns log each line under the request it belongs to."""

from __future__ import annotations

from tests import lane_server
from tests.hostile import Wire

# More than the system buffers.
PIECES = 1500


def test_a_stream_that_goes_on_later_logs_as_its_own_request():
    with lane_server.running(read_threads=1) as server, Wire(server.url) as slow:
        slow.get(f"/whose?name=slow&pieces={PIECES}")
        with Wire(server.url) as quick:
            # Answered by the only thread, when the stream has to wait for its reader.
            assert quick.get("/whose?name=quick").answer().body.split() == [b"quick"]
            assert quick.get("/whose").answer().body.split() == [b"nobody"]
        assert slow.answer().body.split() == [b"slow"] * PIECES
