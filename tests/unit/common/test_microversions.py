"""Which microversion a header asks for, and which features it has."""

from placement.client.client import VERSION
from placement.common.microversions import NEWEST, OLDEST, Feature, Microversion


def test_versions_compare_as_numbers():
    assert Microversion(1, 9) < Microversion(1, 10)
    assert Microversion(1, 25).offers(Feature.GRANULAR_GROUPS)
    assert not Microversion(1, 24).offers(Feature.GRANULAR_GROUPS)


def test_every_version_brings_something_and_none_is_beyond_the_newest():
    brought = {feature.value for feature in Feature}
    assert brought == {Microversion(1, minor) for minor in range(1, NEWEST.minor + 1)}
    assert OLDEST not in brought


def test_our_own_client_speaks_the_newest():
    assert str(NEWEST) == VERSION
