"""Nova flavors and image properties, translated to a Placement query and a guest CPU layout.

Only values go in and out; it uses the standard library and the domain only. `translation` draws the pipeline;
each module is named after what its rules are about, and every refusal is a code in `errors`. It is tested in
tests/unit/flavors/nova and, case by case, through tests/cases/flavor.py.
"""

from placement.flavors.nova.documents import (
    ServerGroup,
    read_document,
    server_group,
    translate_document,
    translation_document,
)
from placement.flavors.nova.errors import FlavorProblem, FlavorRefused
from placement.flavors.nova.flavor import (
    Flavor,
    Options,
    flavor_from_openstack_json,
    image_from_openstack_json,
)
from placement.flavors.nova.translation import Translation, translate

__all__ = [
    "Flavor",
    "FlavorProblem",
    "FlavorRefused",
    "Options",
    "ServerGroup",
    "Translation",
    "flavor_from_openstack_json",
    "image_from_openstack_json",
    "read_document",
    "server_group",
    "translate",
    "translate_document",
    "translation_document",
]
