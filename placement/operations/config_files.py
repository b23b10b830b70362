"""Which configuration files are read, and which of their options do not exist."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from oslo_config import cfg

from placement.domain.errors import PlacementError

DIRECTORY_VARIABLE = "OS_PLACEMENT_CONFIG_DIR"
FILE_VARIABLE = "OS_PLACEMENT_CONFIG_FILE"
_DEFAULT_DIRECTORY = "/etc/placement"
_FILE = "placement.conf"
_SHARED = "DEFAULT"
# They may hold what other programs and ways to sign in read; only what is nearly a known option is refused.
_OPEN = (_SHARED, "keystone_authtoken")
# As near as a slip of the fingers.
_NEAR = 0.75

Options = Mapping[str, Sequence[cfg.Opt]]
OfLibraries = Callable[[str], Sequence[cfg.Opt] | None]


def configuration_files() -> list[str]:
    """The files that are read unless others are given: one named in the environment, or the standard one.

    Raises PlacementError if the environment names what does not exist.
    """
    named = os.environ.get(FILE_VARIABLE)
    if named:
        if not Path(named).is_file():
            raise PlacementError(f"{FILE_VARIABLE}: {named} is no file")
        return [named]
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if directory is not None and not (directory and Path(directory).is_dir()):
        raise PlacementError(f"{DIRECTORY_VARIABLE}: {directory or 'an empty text'} is no directory")
    standard = Path(directory or _DEFAULT_DIRECTORY) / _FILE
    return [str(standard)] if standard.is_file() else []


def refuse_unknown(
    files: Sequence[str], directories: Sequence[str], groups: Options, of_libraries: OfLibraries
) -> None:
    """Raises PlacementError naming an option, in a file or the environment, that nobody reads.

    `of_libraries` gives the options that libraries have in a group, None for a group that may be anybody's.
    """
    inside = [str(path) for directory in directories for path in sorted(Path(directory).glob("*.conf"))]
    for file in [*files, *inside]:
        for group, names in _sections(file).items():
            for name in names:
                _refuse_unknown(file, group, name, groups, of_libraries)
    for variable, group, name in _variables(groups):
        if name not in _names(groups[group]):
            raise PlacementError(
                f"{variable}: there is no option {name} in [{group}]{_near(name, group, groups)}"
            )


def connection_in(file: str) -> str:
    """The URL of the database in a configuration file of OpenStack Placement. Raises PlacementError."""
    found = _sections(file).get("placement_database", {}).get("connection")
    if not found:
        raise PlacementError(f"{file}: there is no connection in [placement_database]")
    return found[-1]


def _sections(file: str) -> dict[str, dict[str, list[str]]]:
    sections: dict[str, dict[str, list[str]]] = {}
    try:
        cfg.ConfigParser(file, sections).parse()
    except (cfg.ParseError, OSError, UnicodeDecodeError) as error:
        raise PlacementError(f"{file}: {' '.join(str(error).split())}") from None
    return sections


def _refuse_unknown(file: str, group: str, name: str, groups: Options, of_libraries: OfLibraries) -> None:
    theirs = of_libraries(group)
    if group not in groups and theirs is None:
        near = difflib.get_close_matches(group, groups, n=1, cutoff=_NEAR)
        if near:
            raise PlacementError(f"{file}: there is no group [{group}]; did you mean [{near[0]}]?")
        return
    known = {**groups, group: [*groups.get(group, ()), *(theirs or ())]}
    near_text = _near(name, group, known)
    if name.replace("-", "_") in _names(known[group]) or (group in _OPEN and not near_text):
        return
    raise PlacementError(f"{file}: there is no option {name} in [{group}]{near_text}")


def _names(options: Sequence[cfg.Opt]) -> set[str]:
    return {name for option in options for name in (option.dest, *_former(option))}


def _former(option: cfg.Opt) -> Iterator[str]:
    return (former.name.replace("-", "_") for former in option.deprecated_opts if former.name)


def _near(name: str, group: str, groups: Options) -> str:
    near = difflib.get_close_matches(name, sorted(_names(groups[group])), n=1, cutoff=_NEAR)
    if near:
        return f"; did you mean {near[0]}?"
    elsewhere = [other for other, options in groups.items() if name in _names(options)]
    return f"; did you mean the one in [{elsewhere[0]}]?" if elsewhere else ""


def _variables(groups: Options) -> Iterator[tuple[str, str, str]]:
    """Variables of the environment that the options of our groups would be read from."""
    for variable in sorted(os.environ):
        for group in groups:
            start = f"OS_{group.upper()}__"
            if group != _SHARED and variable.startswith(start):
                yield variable, group, variable.removeprefix(start).lower()
