"""Clients of a running service that call at random, many at once."""

from __future__ import annotations

import random
from collections import Counter

import requests

from tests.patience import PATIENCE_SECONDS
from tests.service import LATEST


class Caller:
    """One client with a connection and dice of its own, and a count of the answers it got."""

    root = ""
    """Where the paths of its calls begin."""

    def __init__(self, url: str, seed: int = 0) -> None:
        self.url = url
        self.random = random.Random(seed)
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.headers.update({"X-Auth-Token": "admin", "OpenStack-API-Version": f"placement {LATEST}"})
        self.statuses: Counter[tuple[str, int]] = Counter()

    def call(self, method: str, path: str, body: object = None) -> requests.Response:
        """One request; its method and status are counted."""
        url = f"{self.url}{self.root}{path}"
        answer = self.session.request(method, url, json=body, timeout=PATIENCE_SECONDS)
        self.statuses[method, answer.status_code] += 1
        return answer
