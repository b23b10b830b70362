"""Answers about resource classes, traits and versions."""

from placement.api.schemas import patterns
from placement.api.schemas.answers.base import Answer, Link
from placement.api.schemas.fields import Object, Sequence, String


class ResourceClassShown(Answer):
    """One resource class."""

    name = String(pattern=patterns.NAME)
    links = Sequence(Object(Link))


class ResourceClasses(Answer):
    """All resource classes."""

    resource_classes = Sequence(Object(ResourceClassShown))


class Traits(Answer):
    """Names of traits."""

    traits = Sequence(String(pattern=patterns.NAME))


class Version(Answer):
    """The microversions that the service speaks."""

    id = String()
    max_version = String()
    min_version = String()
    status = String()
    links = Sequence(Object(Link))


class Versions(Answer):
    """The version document."""

    versions = Sequence(Object(Version))
