"""`placement sync`: keeping clusters of the service equal to clusters of Kubernetes."""

from __future__ import annotations

import argparse
import re
import signal
from typing import TYPE_CHECKING, Any, NamedTuple

from placement.client.arguments import argument, port_number
from placement.client.command import ActionCommand
from placement.engine.domain.errors import PlacementError
from placement.sync.settings import (
    LEASE_SECONDS,
    LEAST_PATIENCE_SECONDS,
    LONGEST_LEASE_SECONDS,
    PATIENCE_SECONDS,
    SHORTEST_LEASE_SECONDS,
    LeaseName,
)

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from placement.client.client import Client
    from placement.sync.api_server import ApiServer
    from placement.sync.journal import Journal
    from placement.sync.leadership import Leadership
    from placement.sync.service import ServiceCluster
    from placement.sync.synchronization import Synchronization

_OBJECT_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")


def _patience(text: str) -> float:
    """Return seconds, more than any attempt to bind a pod may take. Raises ArgumentTypeError."""
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not LEAST_PATIENCE_SECONDS <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"must be {LEAST_PATIENCE_SECONDS} seconds or more")
    return seconds


def _lease(text: str) -> LeaseName:
    namespace, _, name = text.partition("/")
    if not (_OBJECT_NAME.fullmatch(namespace) and _OBJECT_NAME.fullmatch(name)):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAMESPACE/NAME")
    return LeaseName(namespace, name)


def _lease_seconds(text: str) -> int:
    """Return whole seconds, as a Lease takes them. Raises ArgumentTypeError."""
    is_number = text.isascii() and text.isdecimal()
    if not is_number or not SHORTEST_LEASE_SECONDS <= int(text) <= LONGEST_LEASE_SECONDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a whole number from {SHORTEST_LEASE_SECONDS} to {LONGEST_LEASE_SECONDS}"
        )
    return int(text)


KUBERNETES_ARGUMENTS = (
    argument("--cluster", required=True, help="name of the cluster; it is created if it is missing"),
    argument(
        "--kubeconfig",
        metavar="FILE",
        help="how to reach Kubernetes (default $KUBECONFIG, ~/.kube/config, or as a pod does)",
    ),
    argument("--context", metavar="NAME", help="context of the kubeconfig"),
    argument(
        "--namespace",
        metavar="NAME",
        action="append",
        default=[],
        help="take only pods of this namespace, repeatable (default all)",
    ),
    argument(
        "--claim-patience",
        metavar="SECONDS",
        type=_patience,
        default=PATIENCE_SECONDS,
        help="after this many seconds release the claim of a waiting pod that was never bound "
        f"(default {PATIENCE_SECONDS:.0f}, at least {LEAST_PATIENCE_SECONDS})",
    ),
    argument(
        "--health-port",
        metavar="PORT",
        type=port_number,
        help="answer /livez, /readyz, /healthcheck and /metrics on this port (default: on none)",
    ),
    argument(
        "--health-host",
        metavar="HOST",
        default="127.0.0.1",
        help="the address for that; 0.0.0.0 where Kubernetes probes it (default %(default)s)",
    ),
    argument(
        "--lease",
        metavar="NAMESPACE/NAME",
        type=_lease,
        help="take turns with the other processes that name the same Lease of Kubernetes: only its "
        "holder sends (default: none)",
    ),
    argument(
        "--lease-duration",
        metavar="SECONDS",
        type=_lease_seconds,
        default=LEASE_SECONDS,
        help="how long the others wait for a holder that is gone (default %(default)s, at least "
        f"{SHORTEST_LEASE_SECONDS})",
    ),
)
"""The arguments of every command that follows a Kubernetes."""


class SyncKubernetes(ActionCommand):
    """Keep a cluster as its Kubernetes is: nodes, their topologies, and pods.

    Lists and watches Kubernetes and sends the service what differs, until it is stopped. What the service
    rejects is reported and sent again when it changes.
    """

    arguments = (
        *KUBERNETES_ARGUMENTS,
        argument("--once", action="store_true", help="compare once and exit, 1 if any is rejected"),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        from placement.sync.api_server import ApiServer
        from placement.sync.synchronization import Synchronization

        if parsed_args.lease and parsed_args.once:
            raise PlacementError(
                "--lease: a single comparison with --once takes no turns; leave one of them out"
            )
        api_server = ApiServer(parsed_args.kubeconfig, parsed_args.context)
        parts = SynchronizationParts.of(api_server, self.client, self.app, parsed_args)
        synchronization = Synchronization(
            api_server,
            parts.service,
            parsed_args.namespace,
            parts.journal,
            parsed_args.claim_patience,
            parts.leadership,
        )
        serve_health_if_asked(synchronization, parsed_args)
        if parsed_args.once:
            return 1 if synchronization.once() else 0
        run_until_stopped(synchronization)
        return 0


class SynchronizationParts(NamedTuple):
    """What a synchronization is made of, as the arguments have it."""

    service: ServiceCluster
    journal: Journal
    leadership: Leadership | None

    @classmethod
    def of(
        cls, api_server: ApiServer, client: Client, app: Any, parsed_args: argparse.Namespace
    ) -> SynchronizationParts:
        """Return the parts. Raises PlacementError."""
        from placement.common.secrets import warn_if_readable
        from placement.sync.journal import Journal
        from placement.sync.leadership import Leadership
        from placement.sync.service import ServiceCluster

        if parsed_args.kubeconfig:
            warn_if_readable(parsed_args.kubeconfig, "the credentials")
        journal = Journal(app.stdout, app.stderr)
        leadership = None
        if parsed_args.lease:
            leadership = Leadership(api_server, parsed_args.lease, parsed_args.lease_duration, journal)
        allow = leadership.require if leadership else lambda: None
        return cls(ServiceCluster(client, parsed_args.cluster, allow), journal, leadership)


def serve_health_if_asked(synchronization: Synchronization, parsed_args: argparse.Namespace) -> None:
    """Answer with its health on the port that the arguments have, if any. Raises PlacementError."""
    from placement.sync.health import serve_health

    if parsed_args.health_port:
        serve_health(parsed_args.health_host, parsed_args.health_port, synchronization.progress.checks)


def run_until_stopped(synchronization: Synchronization, others: Sequence[threading.Thread] = ()) -> None:
    """Synchronize until the command is stopped, with other threads beside it. Raises PlacementError."""
    # SIGTERM is no failure; it ends the command as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    synchronization.forever(others)
