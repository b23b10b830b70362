"""The policy files of an operator: which ones count, the rules in them, and why they cannot be used.

Rules that are missing are not taken for withdrawn. A copy that has just begun, one that was cut at the end of
a line, or a volume that is not mounted would open the service to the wider defaults.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from oslo_config import cfg
from oslo_policy import opts, policy

from placement.engine.domain.identifiers import meant, near
from placement.http.errors import Misconfigured
from placement.http.rules import list_rules

LOG = logging.getLogger(__name__)
_GROUP, _FILE, _DIRECTORIES = "oslo_policy", "policy_file", "policy_dirs"
# What the library looks for where nothing is configured; it need not be there.
_USUAL: Mapping[str, Any] = {_FILE: "policy.yaml", _DIRECTORIES: ["policy.d"]}
_ATTEMPTS = 3
_SETTLED_SECONDS = 1.0
_NAMES_SHOWN = 5
# The check that the library puts where it cannot parse a rule, and for "!".
_REFUSAL = type(policy.RuleDefault("nobody", "!").check)

FileStamp = tuple[int, int, int, int] | None
"""What differs once a file has changed, the time of its last change first; None for one that is not found."""


class BadPolicy(Misconfigured):
    """An error of the policy files, which cannot be used; the message says why."""


class PolicyRules(NamedTuple):
    """The rules that were read: the names in each file, and the marks of the files."""

    enforcer: policy.Enforcer
    names: Mapping[Path, frozenset[str]]
    marks: Mapping[Path, FileStamp]


# The rules that the master process has read, for a worker that starts while a file is broken.
prepared: list[PolicyRules] = []


def is_set(settings: cfg.ConfigOpts, group: str, option: str) -> bool:
    """Return whether the option is set, in a file or in the environment, also to a bad value."""
    try:
        location = settings.get_location(option, group)
    except ValueError:
        return True
    return location is not None and location.location not in (
        cfg.Locations.opt_default,
        cfg.Locations.set_default,
    )


def marks_of(configuration: cfg.ConfigOpts) -> dict[Path, FileStamp]:
    """Return the policy files in the order in which they count.

    Raises BadPolicy if one that is configured is missing.
    """
    options = configuration[_GROUP]
    paths = [_found(configuration, _FILE, options.policy_file)]
    for name in options.policy_dirs:
        directory = _found(configuration, _DIRECTORIES, name)
        # The library skips hidden files, too.
        inside = directory.glob("[!.]*") if directory is not None else ()
        paths += sorted(path for path in inside if path.is_file() or path.is_symlink())
    return {path: _mark(path) for path in paths if path is not None}


def _found(configuration: cfg.ConfigOpts, option: str, name: str) -> Path | None:
    found = configuration.find_file(name)
    if found:
        return Path(found)
    if _is_configured(configuration, option):
        raise BadPolicy(f"[{_GROUP}] {option}: there is no {name}.")
    for file in configuration.config_file or ():
        link = Path(file).parent / name
        if link.is_symlink():
            raise BadPolicy(f"{link}: it links to a file that does not exist.")
    return None


def _is_configured(configuration: cfg.ConfigOpts, option: str) -> bool:
    is_usual = configuration[_GROUP][option] == _USUAL[option]
    return not is_usual or is_set(configuration, _GROUP, option)


def _mark(path: Path) -> FileStamp:
    try:
        status = path.stat()
    except OSError:
        return None
    # Permissions change the first one only.
    return status.st_ctime_ns, status.st_mtime_ns, status.st_size, status.st_ino


def are_settled(marks: Mapping[Path, FileStamp]) -> bool:
    """Return whether all files are there and have not changed for a second, so that none is half written."""
    latest = time.time() - _SETTLED_SECONDS
    return all(mark is not None and mark[0] / 1e9 < latest for mark in marks.values())


def read(
    configuration: cfg.ConfigOpts, former_rules: PolicyRules | None = None, *, may_withdraw: bool = False
) -> PolicyRules:
    """Return the rules of the present files.

    Without `former_rules`, what the master process has read counts as that. Raises BadPolicy, also where
    rules of `former_rules` are missing. With `may_withdraw`, as at SIGHUP, rules may be missing, but no file
    that had some may be gone or empty.
    """
    opts._register(configuration)
    former_rules = former_rules or (prepared[0] if prepared else None)
    for _ in range(_ATTEMPTS):
        marks = marks_of(configuration)
        # Where a file is configured it comes first.
        named = next(iter(marks)) if _is_configured(configuration, _FILE) else None
        names = {path: _names(path, is_named=path == named) for path in marks}
        if former_rules is not None:
            _require_rules(names, former_rules, may_withdraw)
        enforcer = _enforcer(configuration)
        # The library has read the files once more.
        if marks_of(configuration) == marks:
            rules = PolicyRules(enforcer, names, marks)
            for sentence in doubts(configuration, rules):
                LOG.warning("%s", sentence)
            return rules
    raise BadPolicy("the policy files change while they are read.")


def _require_rules(names: Mapping[Path, frozenset[str]], former: PolicyRules, may_withdraw: bool) -> None:
    """Raise BadPolicy where former rules stand nowhere any more, unless they were withdrawn on purpose."""
    gone = _missing(names, former)
    for path, before in former.names.items():
        missing = before & gone
        if missing and not names.get(path):
            what = "it has no rules any more" if path in names else "it is gone"
            had = f"had {_counted(before)}, such as {_shown(missing)}"
            raise BadPolicy(f"{path}: {what}, and {had}; a restart would do without.")
    if gone and not may_withdraw:
        files = ", ".join(str(path) for path, before in former.names.items() if before & gone)
        are = "1 rule is missing" if len(gone) == 1 else f"{len(gone)} rules are missing"
        raise BadPolicy(f"{files}: {are}: {_shown(gone)}; SIGHUP or a restart would do without.")


def _missing(names: Mapping[Path, frozenset[str]], former: PolicyRules) -> frozenset[str]:
    empty = frozenset[str]()
    return empty.union(*former.names.values()) - empty.union(*names.values())


def _enforcer(configuration: cfg.ConfigOpts) -> policy.Enforcer:
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
    except cfg.ConfigSourceValueError:
        raise
    except Exception as error:
        # The library reads files once more, and what it raises about them is not documented.
        raise BadPolicy(f"the policy files cannot be read: {_one_line(error)}.") from None
    enforcer.use_conf = False
    return enforcer


def doubts(configuration: cfg.ConfigOpts, rules: PolicyRules) -> Iterator[str]:
    """Yield a sentence about what has no effect: a configured file of comments, and each unknown rule."""
    name = configuration[_GROUP].policy_file
    if _is_configured(configuration, _FILE) and not next(iter(rules.names.values())):
        yield f"{name}: it has no rules, only comments; the defaults count."
    for sentence in _unknown_rules(rules.enforcer):
        yield f"{name}: {sentence}"


def _unknown_rules(enforcer: policy.Enforcer) -> Iterator[str]:
    known = enforcer.registered_rules
    for name in sorted(enforcer.file_rules.keys() - known.keys()):
        if name.startswith("placement:"):
            yield f"there is no rule {name}{meant(near(name, known, 1))}"


def note(rules: PolicyRules, former: PolicyRules | None) -> None:
    """Say in the log how many rules were read, as a warning with the names that are gone."""
    text = summary(rules)
    gone = _missing(rules.names, former) if former is not None else frozenset()
    if gone:
        LOG.warning("rules: %s; %s by default now: %s", text, _counted(gone), _shown(gone))
    else:
        LOG.info("rules: %s", text)


def summary(rules: PolicyRules) -> str:
    """Return how many rules each file has."""
    found = [f"{_counted(names)} of {path}" for path, names in rules.names.items()]
    return ", ".join(found) or "the defaults, without a policy file"


def _shown(names: frozenset[str]) -> str:
    more = ", ..." if len(names) > _NAMES_SHOWN else ""
    return ", ".join(sorted(names)[:_NAMES_SHOWN]) + more


def _counted(names: Any) -> str:
    return "1 rule" if len(names) == 1 else f"{len(names)} rules"


def _names(path: Path, *, is_named: bool) -> frozenset[str]:
    """Return the names of the rules in a file. Raises BadPolicy unless the library understands all of it.

    A file that the configuration names may have comments only, as oslopolicy-sample-generator writes it. It
    may not be empty: then something went wrong with it.
    """
    try:
        text = path.read_text(encoding="utf-8")
        rules = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadPolicy(f"{path}: {_one_line(error)}.") from None
    if is_named and not text.strip():
        raise BadPolicy(f"{path}: it is empty; without [{_GROUP}] {_FILE} the defaults count.")
    if rules is None:
        return frozenset()
    if not isinstance(rules, dict):
        raise BadPolicy(f"{path}: a map from rules to their checks is expected.")
    for name, text in rules.items():
        if not isinstance(name, str) or not isinstance(text, str | list):
            raise BadPolicy(f"{path}: {name}: text is expected, such as role:reader.")
        if isinstance(text, str) and _refusals(policy.RuleDefault(name, text).check) > text.count("!"):
            raise BadPolicy(f"{path}: {name}: {text!r} is not a rule.")
    return frozenset(rules)


def _refusals(check: Any) -> int:
    """Return how many parts of a rule refuse every caller; the library puts one for an unparsable part."""
    if isinstance(check, _REFUSAL):
        return 1
    inner = [*getattr(check, "rules", ()), *([check.rule] if hasattr(check, "rule") else [])]
    return sum(_refusals(part) for part in inner)


def _one_line(error: object) -> str:
    return " ".join(str(error).split()).rstrip(".")
