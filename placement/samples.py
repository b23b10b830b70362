"""`python -m placement.samples`: writes etc/placement.conf.sample and etc/policy.yaml.sample.

Both come from the code, and a test fails when they are not what this writes. It is above the packages, as
it reads options from one and rules from another.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from oslo_policy import policy

from placement.http.rules import list_rules
from placement.server.options import GROUPS

_WIDTH = 100
_LIBRARIES = """
# Options of libraries that most installations touch. Each library documents all of its own.

[DEFAULT]
#debug = false
#log_file = <None>
#log_dir = <None>
#use_journal = false

[oslo_policy]
# Rules that differ from the defaults in policy.yaml.sample.
#policy_file = policy.yaml
#policy_dirs = policy.d
# False lets the role admin pass every rule, as deployments without the role service need it.
#enforce_new_defaults = true

[cors]
# Off until an origin is allowed.
#allowed_origin = https://dashboard.example.org
#allow_credentials = true
#max_age = 3600

[oslo_middleware]
# Believe Forwarded and X-Forwarded-* headers; only behind a proxy that sets them itself.
#enable_proxy_headers_parsing = false

[keystone_authtoken]
# For auth_strategy keystone.
#www_authenticate_uri = https://identity.example.org/v3
#auth_url = https://identity.example.org/v3
#auth_type = password
#username = placement
#password = <secret>
#project_name = service
#user_domain_name = Default
#project_domain_name = Default
#memcached_servers = localhost:11211
"""


def samples() -> dict[str, str]:
    """Return file names below etc/ and their contents.

    Of the configuration every option of ours with its meaning and default, and the usual ones of libraries;
    of the policy every rule with its meaning, routes and default.
    """
    return {
        "placement.conf.sample": "\n".join(_configuration()) + _LIBRARIES,
        "policy.yaml.sample": "\n".join(_policy()) + "\n",
    }


def _configuration() -> Iterator[str]:
    yield "# All options of placement. Each can stand in the environment instead, as OS_<GROUP>__<OPTION>."
    for group, options in GROUPS.items():
        yield f"\n[{group}]"
        for option in options:
            yield ""
            yield from _comment(option.help or "")
            choices: dict[str, str] = getattr(option.type, "choices", None) or {}
            for value, meaning in choices.items():
                yield from _comment(f"{value}: {meaning}", indent="  ")
            default = "<None>" if option.default is None else str(option.default)
            shown = default.lower() if isinstance(option.default, bool) else default
            yield f"#{option.name} = {shown}".rstrip()


def _policy() -> Iterator[str]:
    yield "# All rules of placement with their defaults; copy those that shall differ to policy.yaml."
    yield "# While [oslo_policy] enforce_new_defaults is false, the role admin also passes every rule."
    for rule in list_rules():
        yield ""
        yield from _comment(rule.description or "")
        if isinstance(rule, policy.DocumentedRuleDefault):
            yield from (f"# {operation['method']} {operation['path']}" for operation in rule.operations)
        yield f'#"{rule.name}": "{rule.check_str}"'


def _comment(text: str, indent: str = "") -> list[str]:
    return [f"# {indent}{line}" for line in textwrap.wrap(text, _WIDTH)]


def main() -> None:
    """Write the samples."""
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "etc")
    for name, content in samples().items():
        (directory / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
