"""The commands of `placement` inside the `openstack` client: `openstack placement node show ...`.

That client imports this module for every command of any project, so it imports little. Its commands are
listed in pyproject.toml; they are the classes that `placement` itself runs.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placement.client.signed_in import SignedIn

API_NAME = "placement_forest"
API_VERSION_OPTION = "os_placement_forest_api_version"
DEFAULT_API_VERSION = "1"
API_VERSIONS = ("1",)


def make_client(instance: Any) -> SignedIn:
    """Return a client of the placement service of the cloud that the `openstack` client is signed in to."""
    from placement.client.signed_in import SignedIn

    return SignedIn(instance.session, instance.region_name, instance.interface)


def build_option_parser(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Return the parser as it is: the commands need no options of the whole client."""
    return parser
