"""A scheduler extender that only listens: it hears which nodes kube-scheduler itself takes, and takes none.

kube-scheduler asks an extender about the nodes that passed all of its own filters. So one attempt says what
it decides about each node. No pod is ever bound, so pods that wait do not change what is said of others.
Source: k8s.io/kube-scheduler, extender/v1.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Observer:
    """The nodes that kube-scheduler was last heard to take, by the uid of the pod."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._taken: dict[str, frozenset[str]] = {}

    def hear(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Take note of ExtenderArgs; an ExtenderFilterResult without nodes."""
        names = arguments["nodenames"] or []
        self._taken[arguments["pod"]["metadata"]["uid"]] = frozenset(names)
        return {"NodeNames": [], "FailedNodes": dict.fromkeys(names, "only observed")}

    def taken(self, uid: str) -> frozenset[str]:
        """The nodes that passed all filters; none where kube-scheduler had nothing to ask."""
        return self._taken.get(uid, frozenset())

    def extender(self) -> dict[str, Any]:
        """The observer as kube-scheduler's configuration names it."""
        return {
            "urlPrefix": f"http://127.0.0.1:{self._port}",
            "filterVerb": "filter",
            "weight": 1,
            "nodeCacheCapable": True,
            "httpTimeout": "60s",
        }


@contextmanager
def observing() -> Iterator[Observer]:
    """An observer that listens on loopback during the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            heard = {key.lower(): value for key, value in json.loads(content).items()}
            answer = json.dumps(observer.hear(heard)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    observer = Observer(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield observer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
