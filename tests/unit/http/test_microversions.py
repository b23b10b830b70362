"""Which microversion a header asks for, and which features it has."""

import pytest

from placement.client.client import VERSION
from placement.http.microversions import (
    NEWEST,
    OLDEST,
    Feature,
    InvalidVersion,
    Microversion,
    UnsupportedVersion,
    negotiate,
)


@pytest.mark.parametrize(
    ("header", "agreed"),
    [
        (None, "1.0"),
        ("", "1.0"),
        ("compute 2.1", "1.0"),
        ("placement", "1.0"),
        ("placement latest", "1.39"),
        ("placement 1.4, placement 1.6, compute 2.9", "1.6"),
        ("Placement\t1. 7", "1.7"),
        ("placement 1.00000000000012", "1.12"),
    ],
)
def test_the_last_entry_for_this_service_counts(header, agreed):
    assert str(negotiate(header)) == agreed


@pytest.mark.parametrize("sent", ["1", "1.2.3", "LATEST", "1.x", "1.5 foo", "１.5", ".5"])
def test_what_is_no_version_is_told_as_it_was_sent(sent):
    with pytest.raises(InvalidVersion) as refused:
        negotiate(f"placement {sent}")
    assert str(refused.value) == sent


@pytest.mark.parametrize("sent", ["0.9", "1.40", "2.0", "-1.5", "1.-1", "1." + "9" * 5000])
def test_versions_that_nobody_speaks_are_another_matter(sent):
    with pytest.raises(UnsupportedVersion) as refused:
        negotiate(f"placement {sent}")
    assert str(refused.value) == sent


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
