"""Authorisation: the rules of this service with the changes of an operator's policy files."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from oslo_config import cfg
from oslo_policy import opts, policy

from placement.engine.domain import scope
from placement.engine.domain.errors import Forbidden
from placement.http import context
from placement.http.context import Caller
from placement.http.responses import Misconfigured
from placement.http.rules import ELSEWHERE, list_rules

# Reading rules: the defaults, changed by an operator's policy files, or why these cannot be used.


# The check that the library puts where it cannot parse a rule, and for "!".
_REFUSAL = type(policy.RuleDefault("nobody", "!").check)
Fingerprint = tuple[tuple[str, int, int, int], ...]


class BadPolicy(Misconfigured):
    """An error of the policy files, which cannot be used; the message says why."""


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


def fingerprint(configuration: cfg.ConfigOpts) -> Fingerprint:
    """Return a value that differs when the policy files have changed."""
    return tuple(_marks(configuration))


def _marks(configuration: cfg.ConfigOpts) -> Iterator[tuple[str, int, int, int]]:
    for path in _files(configuration):
        try:
            found = path.stat()
        except OSError:
            continue
        yield str(path), found.st_mtime_ns, found.st_size, found.st_ino


def _files(configuration: cfg.ConfigOpts) -> Iterator[Path]:
    options = configuration.oslo_policy
    found = configuration.find_file(options.policy_file)
    if found:
        yield Path(found)
    for directory in options.policy_dirs:
        found = configuration.find_file(directory)
        if found:
            # The library skips hidden files, too.
            files = (path for path in Path(found).glob("[!.]*") if path.is_file())
            yield from sorted(files)


def enforcer_of(configuration: cfg.ConfigOpts) -> policy.Enforcer:
    """Return an enforcer of the present files, which are not read again. Raises BadPolicy."""
    for path in _files(configuration):
        _check(path)
    enforcer = policy.Enforcer(configuration)
    # Every rule has the same older default; one line in the documentation says it better than a warning
    # per rule and process.
    enforcer.suppress_deprecation_warnings = True
    enforcer.suppress_default_change_warnings = True
    enforcer.register_defaults(list(list_rules()))
    try:
        enforcer.load_rules()
        enforcer.check_rules(raise_on_violation=True)
    except policy.InvalidDefinitionError as error:
        raise BadPolicy(f"{configuration.oslo_policy.policy_file}: {_one_line(error)}.") from None
    except Exception as error:
        # The library reads files once more, and what it raises about them is not documented.
        raise BadPolicy(f"the policy files cannot be read: {_one_line(error)}.") from None
    enforcer.use_conf = False
    return enforcer


def _check(path: Path) -> None:
    """Raise BadPolicy unless the file maps rules to texts that the library understands."""
    try:
        rules = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadPolicy(f"{path}: {_one_line(error)}.") from None
    if rules is None:
        return
    if not isinstance(rules, dict):
        raise BadPolicy(f"{path}: a map from rules to what they check is expected.")
    for name, text in rules.items():
        if not isinstance(name, str) or not isinstance(text, str | list):
            raise BadPolicy(f"{path}: {name}: text is expected, such as role:reader.")
        if isinstance(text, str) and _refusals(policy.RuleDefault(name, text).check) > text.count("!"):
            raise BadPolicy(f"{path}: {name}: {text!r} is no rule.")


def _refusals(check: Any) -> int:
    """Return how many parts of a rule refuse every caller; the library puts one for an unparsable part."""
    if isinstance(check, _REFUSAL):
        return 1
    inner = [*getattr(check, "rules", ()), *([check.rule] if hasattr(check, "rule") else [])]
    return sum(_refusals(part) for part in inner)


def _one_line(error: object) -> str:
    return " ".join(str(error).split()).rstrip(".")


LOG = logging.getLogger(__name__)
_MEMORY_SECONDS = 1.0
# The rules that the master process has read, for a worker that starts while a file is broken.
_prepared: list[policy.Enforcer] = []


def prepare(configuration: cfg.ConfigOpts) -> Callable[[], None]:
    """Read the rules; calling the result hands them to processes that are started from then on.

    Raises BadPolicy.
    """
    opts._register(configuration)
    enforcer = enforcer_of(configuration)

    def publish() -> None:
        _prepared[:] = [enforcer]

    return publish


class Policy:
    """A checker of callers against rules; a changed file counts within a second, unless it is broken."""

    def __init__(self, configuration: cfg.ConfigOpts) -> None:
        """Read the rules, or take the prepared ones if the files are broken. Raises BadPolicy."""
        opts._register(configuration)
        self._configuration = configuration
        self._read = fingerprint(configuration)
        self._enforcer = self._first()
        # A decision costs as much as a search, and a few callers repeat a few requests.
        self._judged: dict[tuple[str, Caller, frozenset[tuple[str, str]]], bool] = {}
        self._judged_since = time.monotonic()
        self._turn = threading.Lock()

    def _first(self) -> policy.Enforcer:
        try:
            return enforcer_of(self._configuration)
        except BadPolicy as error:
            if not _prepared:
                raise
            LOG.error("%s The rules are those of the service's start or last SIGHUP.", error)
            return _prepared[0]

    def knows(self, rule: str) -> bool:
        """Return whether there is such a rule."""
        return rule in self._enforcer.registered_rules

    def authorize(self, rule: str, target: dict[str, str], *, own_only: bool = False) -> scope.Clusters:
        """Return the clusters that the caller may see. Raises Forbidden unless it passes the rule.

        A caller that is bound to clusters is refused elsewhere: the target must name one of these, or the
        route is `own_only` and shows such a caller nothing else, or the rule for elsewhere allows it.
        """
        caller = context.current().caller
        sees = self._seen_by(rule, caller, target, own_only=own_only)
        if not self._allows(rule, caller, target):
            raise Forbidden(f"Policy does not allow {rule} to be performed.")
        return sees

    def _seen_by(
        self, rule: str, caller: Caller, target: dict[str, str], *, own_only: bool
    ) -> scope.Clusters:
        if caller.clusters is None:
            return scope.EVERYTHING
        cluster = target.get("cluster")
        if cluster is None and self._allows(ELSEWHERE, caller, target):
            return scope.EVERYTHING
        if own_only:
            return caller.clusters
        if cluster is None or cluster not in caller.clusters:
            raise Forbidden(
                f"Policy does not allow {rule} to be performed: this token is bound to other clusters."
                if cluster is not None
                else f"Policy does not allow {rule} to be performed: this token is bound to clusters."
            )
        return frozenset((cluster,))

    def _allows(self, rule: str, caller: Caller, target: dict[str, str]) -> bool:
        now = time.monotonic()
        if now - self._judged_since > _MEMORY_SECONDS:
            self._refresh(now)
        judged = self._judged
        case = rule, caller, frozenset(target.items())
        allowed = judged.get(case)
        if allowed is None:
            allowed = judged[case] = self._judge(rule, caller, target)
        return allowed

    def _refresh(self, now: float) -> None:
        """Forget decisions, and use the present files if they are valid."""
        with self._turn:
            if now - self._judged_since <= _MEMORY_SECONDS:
                return
            found = fingerprint(self._configuration)
            if found != self._read:
                self._read = found
                try:
                    self._enforcer = enforcer_of(self._configuration)
                except BadPolicy as error:
                    LOG.error("%s The rules stay as they were.", error)
            self._judged, self._judged_since = {}, now

    def _judge(self, rule: str, caller: Caller, target: dict[str, str]) -> bool:
        try:
            return bool(self._enforcer.authorize(rule, target, _credentials(caller), do_raise=True))
        except policy.InvalidScope:
            raise Forbidden(rule) from None
        except policy.PolicyNotAuthorized:
            return False


def _credentials(caller: Caller) -> dict[str, Any]:
    """Return the properties of a caller for rules; absent ones would be compared as "None"."""
    credentials: dict[str, Any] = {"roles": sorted(caller.roles)}
    for name in ("user_id", "project_id", "domain_id"):
        value = getattr(caller, name)
        if value:
            credentials[name] = value
    if caller.clusters is not None:
        credentials["clusters"] = sorted(caller.clusters)
    if caller.system_scope:
        credentials["system_scope"] = "all"
    return credentials
