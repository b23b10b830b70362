"""A pod is one consumer, however its uid is written and wherever it comes from."""

import uuid

from placement.common.pod_identity import canonical_uid, consumer_of, derived_uid

UID = "7b1f2c9e-aaaa-4000-8000-00000000000f"


def test_a_uuid_has_one_spelling_and_other_uids_keep_theirs():
    assert canonical_uid(UID.upper()) == UID
    assert canonical_uid("Static-Pod") == "Static-Pod"


def test_a_uid_that_is_a_uuid_is_the_consumer_in_every_cluster():
    assert consumer_of("edge", UID) == consumer_of("batch", UID.upper()) == UID


def test_other_uids_give_a_consumer_of_their_own_in_each_cluster():
    found = {consumer_of(cluster, uid) for cluster in ("edge", "batch") for uid in ("a", "A")}
    assert len(found) == 4
    assert all(str(uuid.UUID(each)) == each for each in found)
    assert consumer_of("edge", "a") == consumer_of("edge", "a")


def test_a_pod_without_uid_gets_the_same_one_each_time():
    assert derived_uid("edge", "default", "p") == derived_uid("edge", "default", "p")
    assert derived_uid("edge", "default", "p") != derived_uid("edge", "other", "p")
