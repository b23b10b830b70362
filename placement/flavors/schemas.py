"""Bodies with nova flavors, to describe them to callers; flavors.nova does the checks."""

from placement.allocations.candidate_schemas import ClaimantSchema
from placement.engine.domain.inventories import MAX_INT
from placement.flavors.nova.flavor import FLAT, GRANULAR, MAX_VCPUS
from placement.http.schemas import (
    Boolean,
    Choice,
    Integer,
    Mapping,
    Object,
    Sequence,
    String,
    VersionedSchema,
)

_TEXTS = Mapping("", String(), shown_pattern="^.*$")
MOST_AGGREGATES, LONGEST_AGGREGATES = 100, 4000
"""How many `member_of` a request for a flavor may have, and how long each may be."""


def _member_of() -> Sequence:
    return Sequence(String(1, LONGEST_AGGREGATES), least=1, most=MOST_AGGREGATES)


class FlavorSchema(VersionedSchema):
    """A nova flavor; memory and swap in MiB, disks in GiB."""

    vcpus = Integer(1, MAX_VCPUS, required=True)
    memory_mb = Integer(0, MAX_INT, required=True)
    root_gb = Integer(0, MAX_INT)
    ephemeral_gb = Integer(0, MAX_INT)
    swap_mb = Integer(0, MAX_INT)
    extra_specs = _TEXTS


class FlavorOptionsSchema(VersionedSchema):
    """The options of a translation."""

    boot_from_volume = Boolean()
    limit = Integer(1, MAX_INT, nullable=True)
    strict = Boolean()
    pcpu_fallback = Boolean()
    numa = Choice([FLAT, GRANULAR])
    device_cells = Mapping("", Integer(0, MAX_VCPUS), shown_pattern="^.*$")


class FlavorRequestSchema(VersionedSchema):
    """A body of POST /ext/v1/flavors/translation."""

    flavor = Object(FlavorSchema, required=True)
    image = Mapping("", String(), shown_pattern="^.*$", nullable=True)
    options = Object(FlavorOptionsSchema, nullable=True)


class FlavorSearchSchema(FlavorRequestSchema):
    """A body of POST /ext/v1/flavors/candidates."""

    limit = Integer(1, MAX_INT, nullable=True)
    cluster = String(nullable=True)
    explain = Boolean(nullable=True)
    closed = Boolean(nullable=True)
    # As in a query string: a name or UUID, `in:` and several, or `!` and one to avoid.
    member_of = _member_of()


class ClaimForFlavorSchema(ClaimantSchema, FlavorRequestSchema):
    """A claim for a flavor, which is translated when it is claimed."""

    cluster = String(nullable=True)
    closed = Boolean(nullable=True)
    member_of = _member_of()
