"""The configuration files that are read, and options that do not exist."""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from keystoneauth1 import exceptions, loading
from oslo_config import cfg

from placement.engine.domain.errors import PlacementError
from placement.server.options import GROUPS

DIRECTORY_VARIABLE = "OS_PLACEMENT_CONFIG_DIR"
FILE_VARIABLE = "OS_PLACEMENT_CONFIG_FILE"
_DEFAULT_DIRECTORY = "/etc/placement"
_FILE = "placement.conf"
SHARED = "DEFAULT"
# It may hold what other programs read; only what is nearly a known option is refused.
_OPEN = (SHARED,)
# OpenStack Placement ignores what it does not know in these, so files of deployments carry leftovers, as the
# `auth_uri` that openstack-helm writes. They are warned of. What is nearly one of these options is refused:
# they decide about access, and a slip would leave it wider than was meant.
_KEYSTONE = "keystone_authtoken"
_LENIENT: Mapping[str, Collection[str]] = {
    _KEYSTONE: (
        "delay_auth_decision",
        "enforce_token_bind",
        "insecure",
        "service_token_roles",
        "service_token_roles_required",
        "token_cache_time",
    ),
    "placement": ("policy_file",),
}
# Former options, and the ones that have their meaning now.
_RENAMED = {"auth_uri": "www_authenticate_uri", "identity_uri": "auth_url"}
# As near as a slip of the fingers.
_NEAR = 0.75
# The module that lists the options of a group.
_LISTED_BY = {
    "DEFAULT": "oslo_log._options",
    "oslo_policy": "oslo_policy.opts",
    "cors": "oslo_middleware.opts",
    "oslo_middleware": "oslo_middleware.opts",
}
# Older configurations have it; by now scopes are always enforced.
_FORMER = {"oslo_policy": [cfg.BoolOpt("enforce_scope")]}


def default_files() -> list[str]:
    """Return the files that are read by default: the one named in the environment, or the standard one.

    Raises PlacementError if the environment names what does not exist.
    """
    named = os.environ.get(FILE_VARIABLE)
    if named:
        if not Path(named).is_file():
            raise PlacementError(f"{FILE_VARIABLE}: {named} is not a file")
        return [named]
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if directory is not None and not (directory and Path(directory).is_dir()):
        raise PlacementError(f"{DIRECTORY_VARIABLE}: {directory or 'an empty text'} is not a directory")
    standard = Path(directory or _DEFAULT_DIRECTORY) / _FILE
    return [str(standard)] if standard.is_file() else []


def unknown_options(files: Sequence[str], directories: Sequence[str]) -> Iterator[UnknownOption]:
    """Yield each option, in a file or the environment, that is never read.

    Raises PlacementError naming a file that is no configuration.
    """
    inside = [str(path) for directory in directories for path in sorted(Path(directory).glob("*.conf"))]
    for file in [*files, *inside]:
        for section, given in sections_of(file).items():
            for found in _unknown_in(section, given):
                yield found._replace(sentence=f"{file}: {found.sentence}")
    for variable in sorted(os.environ):
        for group, options in GROUPS.items():
            start = f"OS_{group.upper()}__"
            name = variable.removeprefix(start).lower()
            known = names_of(options)
            if group != SHARED and variable.startswith(start) and name not in known:
                hint = _hint(name, group, known)
                yield UnknownOption(f"{variable}: there is no option {name} in [{group}]{hint}", True)


def _unknown_in(group: str, options: Mapping[str, Sequence[str]]) -> Iterator[UnknownOption]:
    """Yield the options of a group in a file that are never read, or the group itself."""
    theirs = options_of(group, (*options.get("auth_type", ()), *options.get("auth_plugin", ())))
    if group not in GROUPS and theirs is None:
        near = difflib.get_close_matches(group, GROUPS, n=1, cutoff=_NEAR)
        if near and options:
            yield UnknownOption(f"there is no group [{group}]; did you mean [{near[0]}]?", True)
        return
    known = names_of([*GROUPS.get(group, ()), *(theirs or ())])
    for name in options:
        if name.replace("-", "_") in known:
            continue
        sentence, hint = f"there is no option {name} in [{group}]", _hint(name, group, known)
        if group not in _LENIENT:
            if group not in _OPEN or hint:
                yield UnknownOption(f"{sentence}{hint}", True)
        elif _near(name, known) in _LENIENT[group]:
            yield UnknownOption(f"{sentence}{hint}", True)
        else:
            now = f"; its name is {_RENAMED[name]} now" if name in _RENAMED else hint
            yield UnknownOption(f"{sentence}, so it has no effect{now}", False)


def connection_in(file: str) -> str:
    """Return the database URL in a configuration file of OpenStack Placement. Raises PlacementError."""
    found = sections_of(file).get("placement_database", {}).get("connection")
    if not found:
        raise PlacementError(f"{file}: there is no connection in [placement_database]")
    return found[-1]


def sections_of(file: str) -> dict[str, dict[str, list[str]]]:
    """Return the values of the options in a file, by group and name. Raises PlacementError."""
    sections: dict[str, dict[str, list[str]]] = {}
    try:
        cfg.ConfigParser(file, sections).parse()
    except (cfg.ParseError, OSError, UnicodeDecodeError) as error:
        raise PlacementError(f"{file}: {' '.join(str(error).split())}") from None
    return sections


def names_of(options: Iterable[cfg.Opt]) -> set[str]:
    """Return the names of options, with the former ones."""
    former = [each.name for option in options for each in option.deprecated_opts if each.name]
    return {option.dest for option in options} | {name.replace("-", "_") for name in former}


def _near(name: str, known: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, sorted(known), n=1, cutoff=_NEAR)), None)


def _hint(name: str, group: str, known: Iterable[str]) -> str:
    near = _near(name, known)
    if near:
        return f"; did you mean {near}?"
    elsewhere = [each for each, options in GROUPS.items() if each != group and name in names_of(options)]
    return f"; did you mean the one in [{elsewhere[0]}]?" if elsewhere else ""


class UnknownOption(NamedTuple):
    """An option that is never read: a sentence about it, and whether the start is refused for it."""

    sentence: str
    is_refused: bool


def options_of(group: str, plugins: Iterable[str] = ()) -> Sequence[cfg.Opt] | None:
    """Return the options that libraries read in the group; None if that is not known.

    `plugins` are the ways to sign in at Identity, beside passwords, with options in that group.
    """
    if group == _KEYSTONE:
        # The extra `keystone` may be missing.
        try:
            from keystonemiddleware.opts import list_auth_token_opts
        except ImportError:
            return None
        options = [option for _, listed in list_auth_token_opts() for option in listed]
        for plugin in ("password", *plugins):
            # One that there is not is named when the middleware is built.
            with suppress(exceptions.NoMatchingPlugin):
                options += loading.get_auth_plugin_conf_options(loading.get_plugin_loader(plugin))
        return options
    module = _LISTED_BY.get(group)
    if module is None:
        return None
    listed = import_module(module).list_opts()
    options = [option for section, those in listed if section in (group, None) for option in those]
    return [*options, *_FORMER.get(group, ())]
