"""`placement schedule`: placing and binding the pods of Kubernetes, beside the synchronization."""

from __future__ import annotations

import argparse

from placement.client.arguments import argument
from placement.client.command import ActionCommand
from placement.sync.command import (
    KUBERNETES_ARGUMENTS,
    SynchronizationParts,
    run_until_stopped,
    serve_health_if_asked,
)

DEFAULT_SCHEDULER = "placement"


class ScheduleKubernetes(ActionCommand):
    """Schedule the pods of a Kubernetes cluster, and keep the cluster of the service as Kubernetes is.

    Places the pods that name this scheduler, many in one call, and binds them with their CPUs. Pods with the
    scheduling gate placement.cpus/choose get CPUs and node, and another scheduler binds them.
    """

    arguments = (
        *KUBERNETES_ARGUMENTS,
        argument(
            "--scheduler-name",
            metavar="NAME",
            action="append",
            default=[],
            help=f"place pods with this schedulerName, repeatable (default {DEFAULT_SCHEDULER})",
        ),
        argument(
            "--replace-refused",
            action="store_true",
            help="delete a pod that its own scheduler refuses on the node chosen for its CPUs, if it has an "
            "owner that makes another one (default: it gets an Event)",
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        from placement.scheduling.scheduling import Scheduling
        from placement.sync.api_server import ApiServer

        # Each has connections of its own: watches hold theirs as long as they last.
        watching, writing = (ApiServer(parsed_args.kubeconfig, parsed_args.context) for _ in range(2))
        parts = SynchronizationParts.of(watching, self.client, self.app, parsed_args)
        scheduling = Scheduling(
            watching,
            writing,
            parts,
            parts.service.by(self.client),
            parsed_args.namespace,
            parsed_args.claim_patience,
            parsed_args.scheduler_name or [DEFAULT_SCHEDULER],
            replaces=parsed_args.replace_refused,
        )
        serve_health_if_asked(scheduling.synchronization, parsed_args)
        run_until_stopped(scheduling.synchronization, scheduling.threads)
        return 0
