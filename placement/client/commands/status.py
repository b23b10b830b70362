"""`placement status`: which service answers, how it is, and which caller it sees."""

from __future__ import annotations

import argparse

from placement.client.cells import lines
from placement.client.command import Details
from placement.client.tables import ShownTable


class ShowStatus(Details):
    """Show which service answers, its database, the caller as it is known there, and how the service is.

    The check `forest-loaded` says when the search last read the database. The command ends with 1 if a
    check fails.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        client = self.client
        status = client.get("/ext/v1/status")
        checks = {check["name"]: check for check in status["checks"]}
        if not all(check["ok"] for check in checks.values()):
            self.exit_status = 1
        fields = {
            "url": client.url,
            **{name: status[name] for name in ("release", "database", "user_id", "project_id")},
            **{name: lines(status[name] or ()) for name in ("roles", "clusters")},
            **{
                name.replace("-", "_"): f"{'' if check['ok'] else 'failed: '}{check['detail']}"
                for name, check in checks.items()
            },
        }
        return tuple(fields), tuple(fields.values())
