"""The guard of a handler: it checks version, media types and policy of a request, in this order."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from flask import Blueprint, current_app, g, request
from oslo_config import cfg
from oslo_policy import policy

from placement.common.microversions import HEADER, NEWEST, SERVICE, Feature
from placement.engine.domain import request_scope
from placement.engine.domain.errors import BadRequest, Forbidden, NotFound
from placement.http import context, policy_files
from placement.http.context import Caller, HttpError, admits_json, peeked
from placement.http.operations import (
    Operation,
    RouteGuard,
    describes,
    every,
    parameters,
    read,
    refuse_unknown,
)
from placement.http.policy_files import BadPolicy, Mark, are_settled, marks_of
from placement.http.rules import ELSEWHERE

Handler = Callable[..., Any]
Target = dict[str, str]
OWN_PATHS = "/ext/"
"""The start of the paths of our own routes, which have no microversions."""
_CLUSTER = "cluster"
_RULES: set[str] = set()


def guarded_by() -> frozenset[str]:
    """Return the policy rules that some route asks for."""
    return frozenset(_RULES)


def route(
    blueprint: Blueprint,
    path: str,
    method: str,
    policy: str,
    *,
    since: Feature | None = None,
    gives_json: bool = False,
    media_types_first: bool = False,
    missing_method_below: Feature | None = None,
    target: Callable[[], Target] = dict,
    own_only: bool = False,
    reads: bool = False,
    described: Operation | None = None,
) -> Callable[[Handler], Handler]:
    """Register a handler behind its guard.

    `since`: 404 below that feature. `missing_method_below`: 405 below it.
    `gives_json`: the caller must accept JSON.
    `media_types_first`: these are tested before the version.
    `target`: the parts of the request that the policy rule may look at, beside the cluster in the path.
    `own_only`: the handler shows callers that are bound to clusters nothing but these clusters.
    `reads`: the handler changes nothing, although its method could.
    `described`: what it takes and returns; the OpenAPI document leaves out a route without it. Our own routes
    refuse parameters that are not described.
    """
    _RULES.add(policy)
    takes_json = described is not None and described.takes_json
    guard = RouteGuard(since, missing_method_below, takes_json, gives_json)
    refuses_query = path.startswith(OWN_PATHS) and described is not None and not described.query

    def decorate(handler: Handler) -> Handler:
        @describes(described, guard)
        @wraps(handler)
        def guarded(**path_arguments: str) -> Any:
            g.placement.reads = reads
            if media_types_first:
                _check_media_types(takes_json, gives_json)
            _check_version(since, missing_method_below)
            if not media_types_first:
                _check_media_types(takes_json, gives_json)
            asked = target()
            if _CLUSTER in path_arguments:
                asked = {**asked, _CLUSTER: path_arguments[_CLUSTER]}
            request_scope.show_only(
                current_app.extensions["placement_policy"].authorize(policy, asked, own_only=own_only)
            )
            if refuses_query and request.query_string:
                refuse_unknown(parameters(), ())
            return handler(**path_arguments)

        blueprint.add_url_rule(path, endpoint=f"{method} {path}", view_func=guarded, methods=[method])
        return guarded

    return decorate


def _check_version(since: Feature | None, missing_method_below: Feature | None) -> None:
    if since is not None and not context.offers(since):
        # Clients that forget the header, or the service in it, ask for the oldest version.
        sent = request.headers.get(HEADER, SERVICE)
        nameless = "" if SERVICE in sent.lower() else f"; the one that was sent does not name {SERVICE}"
        raise NotFound(
            f"{request.path} is there from microversion {since.value} on, and this request is of "
            f"{context.version()}: send {HEADER}: {SERVICE} {since.value}, or up to {NEWEST}{nameless}"
        )
    if missing_method_below is not None and not context.offers(missing_method_below):
        raise HttpError(405, "The method specified is not allowed for this resource.")


def _check_media_types(takes_json: bool, gives_json: bool) -> None:
    if takes_json:
        require_json()
    if gives_json and not admits_json():
        raise HttpError(406, "Only application/json is provided")


def require_json() -> None:
    """Raise HttpError 415 unless the body is declared as JSON."""
    if request.mimetype != "application/json":
        sent = request.content_type or None
        raise HttpError(415, f"The media type {sent} is not supported, use application/json")


# The target of policy rules: the cluster that a request is about.
#
# A request that cannot be understood names no cluster: callers that are bound to clusters are refused, and
# others learn from the handler what is wrong.


def cluster_of_query() -> Target:
    """Return the cluster in the query string."""
    return _of_query(request.query_string.decode("latin-1"))


def cluster_of_body() -> Target:
    """Return the cluster that is a member of the body."""
    body = peeked()
    return _named(body.get("cluster")) if isinstance(body, dict) else {}


def cluster_of_claim() -> Target:
    """Return the cluster that all members of the body name, else that of its query, else its own."""
    body = peeked()
    if not isinstance(body, dict):
        return {}
    if not isinstance(body.get("members"), list):
        query = body.get("query")
        return _named(body.get("cluster")) if query is None else _of_query(query)
    members = [member for member in body["members"] if isinstance(member, dict)]
    by_query = [each for each in members if "query" in each or "flavor" not in {*each, *body}]
    queries = [member.get("query", body.get("query")) for member in by_query]
    texts = {query for query in queries if isinstance(query, str)}
    wanted = [*texts, *(query for query in queries if not isinstance(query, str))]
    found = {_of_query(query).get("cluster") for query in wanted}
    if len(by_query) < len(members):
        found |= {_named(each.get("cluster", body.get("cluster"))).get("cluster") for each in members}
    # Which of several counts would be a guess.
    return _named(found.pop()) if len(found) == 1 else {}


def _of_query(query: Any) -> Target:
    """Return the cluster in a query, a text or JSON, if exactly one is named."""
    if isinstance(query, dict):
        return _named(query.get("cluster"))
    try:
        found = every(read(query), "cluster") if isinstance(query, str) else []
    except BadRequest:
        return {}
    return {"cluster": found[0]} if len(found) == 1 else {}


def _named(cluster: Any) -> Target:
    return {"cluster": cluster} if isinstance(cluster, str) else {}


# Authorisation: the rules of this service, changed by an operator's policy files.


_MEMORY_SECONDS = 1.0
LOG = logging.getLogger(__name__)


@policy.register("cluster")
class ClusterCheck(policy.Check):
    """A check `cluster:%(cluster)s` that the token is bound to the cluster that is asked about.

    `cluster:edge` checks that it is bound to that one. A token that is bound to no clusters does not pass.
    """

    def __call__(self, target: Any, creds: Any, enforcer: Any, current_rule: str | None = None) -> bool:
        try:
            wanted = self.match % target
        except KeyError:
            return False
        return wanted in creds.get("clusters", ())


class Policy:
    """A checker of callers against rules; a changed file counts once it is whole, unless it is broken."""

    def __init__(self, configuration: cfg.ConfigOpts) -> None:
        """Read the rules, or take the prepared ones if the files are broken. Raises BadPolicy."""
        self._configuration = configuration
        try:
            self._rules = policy_files.read(configuration)
            policy_files.note(self._rules, None)
        except BadPolicy as error:
            if not policy_files.prepared:
                raise
            LOG.error("%s The rules are those of the service's start or last SIGHUP.", error)
            self._rules = policy_files.prepared[0]
        # The files as they were read last, with or without success, and as they were seen last.
        self._read: object = self._rules.marks
        self._seen: object = self._read
        # A decision costs as much as a search, and a few callers repeat a few requests.
        self._judged: dict[tuple[str, Caller, frozenset[tuple[str, str]]], bool] = {}
        self._judged_since = time.monotonic()
        self._turn = threading.Lock()

    @property
    def known(self) -> frozenset[str]:
        """Return the names of the rules."""
        return frozenset(self._rules.enforcer.registered_rules)

    def authorize(
        self, rule: str, target: dict[str, str], *, own_only: bool = False
    ) -> request_scope.Clusters:
        """Return the clusters that the caller may see. Raises Forbidden unless it passes the rule.

        A caller that is bound to clusters is refused elsewhere: the target must name one of these, or the
        route is `own_only` and shows such a caller nothing else, or the rule for elsewhere allows it.
        """
        caller, refused = g.placement.caller, f"Policy does not allow {rule} to be performed"
        bound, cluster = caller.clusters, target.get("cluster")
        sees: request_scope.Clusters
        if bound is None or (cluster is None and self._allows(ELSEWHERE, caller, target)):
            sees = request_scope.EVERYTHING
        elif own_only:
            sees = bound
        elif cluster is None:
            none = f"the request names none, such as cluster={min(bound, default='NAME')}"
            raise Forbidden(f"{refused}: this token is bound to clusters, and {none}.")
        elif cluster not in bound:
            raise Forbidden(f"{refused}: this token is bound to other clusters.")
        else:
            sees = frozenset((cluster,))
        if not self._allows(rule, caller, target):
            raise Forbidden(f"{refused}.")
        return sees

    def _allows(self, rule: str, caller: Caller, target: dict[str, str]) -> bool:
        now = time.monotonic()
        if now - self._judged_since > _MEMORY_SECONDS:
            self._refresh(now)
        judged = self._judged
        case = rule, caller, frozenset(target.items())
        allowed = judged.get(case)
        if allowed is None:
            try:
                credentials = _credentials(caller)
                allowed = bool(self._rules.enforcer.authorize(rule, target, credentials, do_raise=True))
            except policy.InvalidScope:
                raise Forbidden(rule) from None
            except policy.PolicyNotAuthorized:
                allowed = False
            judged[case] = allowed
        return allowed

    def _refresh(self, now: float) -> None:
        """Forget decisions, and use the present files if they are valid.

        A file that was just changed is looked at once more before it is read: it may be half written.
        """
        with self._turn:
            if now - self._judged_since <= _MEMORY_SECONDS:
                return
            try:
                self._read_again()
            except BadPolicy as error:
                LOG.error("%s The rules stay as they were.", error)
            self._judged, self._judged_since = {}, now

    def _read_again(self) -> None:
        """Use the present files if they have changed. Raises BadPolicy, once for each change."""
        found: dict[Path, Mark] | str
        try:
            found = marks_of(self._configuration)
        except BadPolicy as error:
            found = str(error)
        was_seen, self._seen = found == self._seen, found
        if found == self._read or not (was_seen or (isinstance(found, dict) and are_settled(found))):
            return
        self._read = found
        self._rules = policy_files.read(self._configuration, self._rules)
        self._read = self._rules.marks
        policy_files.note(self._rules, None)


def _credentials(caller: Caller) -> dict[str, Any]:
    """Return the properties of a caller for rules; absent ones would be compared as "None"."""
    names = ("user_id", "project_id", "domain_id")
    credentials = {name: getattr(caller, name) for name in names if getattr(caller, name)}
    credentials["roles"] = sorted(caller.roles)
    if caller.clusters is not None:
        credentials["clusters"] = sorted(caller.clusters)
    if caller.system_scope:
        credentials["system_scope"] = "all"
    return credentials
