"""The configuration as the service uses it: everything that is wrong with it, and what workers need of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from oslo_config import cfg

from placement.allocations.orders import order_of
from placement.engine.domain.errors import PlacementError, RequestPlace
from placement.http import policy_files
from placement.http.errors import Misconfigured
from placement.http.strategies import tokens
from placement.http.strategies.keystone import Keystone
from placement.http.strategies.tokens import NO_FILE, BadTokens, TokenEntry
from placement.planning.routes import watched
from placement.server import settings
from placement.server.settings import ConfigurationErrors

OPTIONS = "options"
CALLERS, RULES, DATABASE, TLS = "callers", "rules", "database", "TLS"


def _callers(loaded: cfg.ConfigOpts) -> Sequence[TokenEntry] | Keystone:
    """Return the tokens, or the strategy that asks Keystone; no tokens where every caller is believed."""
    settings.require_strategy(loaded)
    if loaded.api.auth_strategy == "keystone":
        return Keystone(loaded)
    if loaded.api.auth_strategy != "token":
        return ()
    if not loaded.api.tokens_file:
        raise BadTokens(NO_FILE)
    return tokens.read(Path(loaded.api.tokens_file))


def _logging(loaded: cfg.ConfigOpts) -> None:
    file = loaded.log_config_append
    if file and not Path(file).is_file():
        raise PlacementError(f"[DEFAULT] log_config_append: there is no file {file}")


_SUBJECTS: Mapping[str, Callable[[cfg.ConfigOpts], Any]] = {
    CALLERS: _callers,
    RULES: partial(policy_files.read, may_withdraw=True),
    DATABASE: settings.connection_of,
    TLS: settings.tls_of,
    "scoring": lambda loaded: order_of(loaded.scoring.order_by, RequestPlace("[scoring] order_by")),
    "capacity": lambda loaded: watched(loaded.capacity.watch),
    "logging": _logging,
}


class Examined(NamedTuple):
    """A configuration, the objects that its subjects give, and what is wrong: pairs of subject, sentence."""

    loaded: cfg.ConfigOpts
    results: Mapping[str, Any]
    problems: Sequence[tuple[str, str]]


def examine() -> Examined:
    """Read everything that the configuration names. Raises PlacementError for a file that is none."""
    loaded, bad_options = settings.read()
    problems = [(OPTIONS, sentence) for sentence in bad_options]
    results = {}
    for subject, reading in _SUBJECTS.items():
        try:
            results[subject] = reading(loaded)
        except (PlacementError, Misconfigured) as error:
            problems.append((subject, str(error)))
        except cfg.ConfigSourceValueError:
            # One of the bad options, of which this subject depends.
            continue
    return Examined(loaded, results, problems)


def prepare() -> cfg.ConfigOpts:
    """Read tokens and rules as they are now, for workers that start from now on; return the configuration.

    Raises ConfigurationErrors, PlacementError; then nothing has changed.
    """
    loaded, results, problems = examine()
    if problems:
        raise ConfigurationErrors([sentence for _, sentence in problems])
    if loaded.api.auth_strategy == "token":
        tokens.prepared[Path(loaded.api.tokens_file)] = results[CALLERS]
    if policy_files.prepared:
        policy_files.note(results[RULES], policy_files.prepared[0])
    policy_files.prepared[:] = [results[RULES]]
    return loaded
