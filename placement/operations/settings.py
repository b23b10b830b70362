"""Configuration: an ini file, environment variables OS_<GROUP>__<OPTION>, and the command line.

Option names are those that operators of OpenStack Placement know.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from oslo_config import cfg

DIRECTORY_VARIABLE = "OS_PLACEMENT_CONFIG_DIR"
FILE_VARIABLE = "OS_PLACEMENT_CONFIG_FILE"
CONNECTION_VARIABLE = "OS_PLACEMENT_DATABASE__CONNECTION"
_DEFAULT_DIRECTORY = "/etc/placement"
_FILE = "placement.conf"
_NOBODY = "00000000-0000-0000-0000-000000000000"

DATABASE = [
    cfg.StrOpt("connection", secret=True, help="URL of the database, SQLite or PostgreSQL."),
    cfg.IntOpt("max_pool_size", default=10, min=1, help="Connections kept open per process."),
    cfg.IntOpt("max_overflow", default=10, min=0, help="Connections opened beyond the pool under load."),
    cfg.IntOpt("pool_timeout", default=10, min=1, help="Seconds to wait for a connection before a 503."),
]
API = [
    cfg.StrOpt("auth_strategy", default="noauth2", choices=["noauth2"], help="How callers are identified."),
]
PLACEMENT = [
    cfg.IntOpt(
        "max_allocation_candidates",
        default=100_000,
        min=-1,
        help="How many candidates one query may generate; -1 for any number.",
    ),
    cfg.StrOpt(
        "allocation_candidates_generation_strategy",
        default="breadth-first",
        choices=["breadth-first", "depth-first"],
        help="One candidate per tree in turn, or tree by tree.",
    ),
    cfg.StrOpt(
        "incomplete_consumer_project_id",
        default=_NOBODY,
        help="Project of consumers written below microversion 1.8.",
    ),
    cfg.StrOpt(
        "incomplete_consumer_user_id",
        default=_NOBODY,
        help="User of consumers written below microversion 1.8.",
    ),
]
GROUPS = {"placement_database": DATABASE, "api": API, "placement": PLACEMENT}


def load(config_files: Sequence[str] | None = None) -> cfg.ConfigOpts:
    """The configuration of this process. Raises SystemExit with a clear message for a bad file or value."""
    settings = cfg.ConfigOpts()
    for group, options in GROUPS.items():
        settings.register_opts(options, group=group)
    settings(
        args=[],
        project="placement",
        default_config_files=_files(config_files),
        default_config_dirs=[],
    )
    return settings


def _files(given: Sequence[str] | None) -> list[str]:
    if given:
        return list(given)
    named = os.environ.get(FILE_VARIABLE)
    if named:
        return [named]
    standard = Path(os.environ.get(DIRECTORY_VARIABLE, _DEFAULT_DIRECTORY)) / _FILE
    return [str(standard)] if standard.is_file() else []
