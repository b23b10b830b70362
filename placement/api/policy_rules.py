"""Reading rules: the defaults, changed by an operator's policy files, or why these cannot be used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from oslo_config import cfg
from oslo_policy import policy

from placement.api.errors import Misconfigured
from placement.api.rules import list_rules

# The check that the library puts where it cannot parse a rule, and for "!".
_REFUSAL = type(policy.RuleDefault("nobody", "!").check)
Fingerprint = tuple[tuple[str, int, int, int], ...]


class BadPolicy(Misconfigured):
    """The policy files cannot be used; the message says why."""


@policy.register("cluster")
class ClusterCheck(policy.Check):
    """`cluster:%(cluster)s`: the token is bound to the cluster that is asked about.

    `cluster:edge`: it is bound to that one. A token that is bound to no clusters does not pass.
    """

    def __call__(self, target: Any, creds: Any, enforcer: Any, current_rule: str | None = None) -> bool:
        try:
            wanted = self.match % target
        except KeyError:
            return False
        return wanted in creds.get("clusters", ())


def fingerprint(configuration: cfg.ConfigOpts) -> Fingerprint:
    """A value that differs when the policy files have changed."""
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
    """The rules with the present files; the files are not read again. Raises BadPolicy."""
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
    """Raises BadPolicy unless the file maps rules to texts that the library understands."""
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
    """How many parts of a rule refuse every caller; the library puts one where it cannot parse a part."""
    if isinstance(check, _REFUSAL):
        return 1
    inner = [*getattr(check, "rules", ()), *([check.rule] if hasattr(check, "rule") else [])]
    return sum(_refusals(part) for part in inner)


def _one_line(error: object) -> str:
    return " ".join(str(error).split()).rstrip(".")
