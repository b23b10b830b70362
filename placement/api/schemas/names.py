"""Bodies and names of resource classes and traits."""

from placement.api.schemas import patterns
from placement.api.schemas.base import VersionedSchema
from placement.api.schemas.fields import String


class ResourceClass(VersionedSchema):
    """POST /resource_classes, and the renaming PUT before 1.7."""

    name = String(0, patterns.LONGEST_NAME, patterns.CUSTOM_NAME, required=True)
