"""What each QoS class answers; the rules about pods that have them are in the table of rules."""

import pytest

from placement.pods.model import PriorityClass, QosClass


@pytest.mark.parametrize("qos", QosClass)
def test_an_unset_priority_class_follows_from_the_qos_class(qos):
    expected = "koord-batch" if qos is QosClass.BE else "koord-prod"
    assert qos.default_priority == expected


def test_each_class_answers_what_its_pods_may():
    def those(answer):
        return {str(qos) for qos in QosClass if answer(qos)}

    assert those(lambda qos: qos.owns_cpus) == {"LSE", "LSR"}
    assert those(lambda qos: not qos.shares_with_best_effort) == {"LSE"}
    assert those(lambda qos: qos.uses_ls_pools) == {"LS"}
    assert those(lambda qos: qos.uses_system_cpus) == {"SYSTEM"}
    assert those(lambda qos: PriorityClass.PROD in qos.forbidden_priorities) == {"BE"}
    assert those(lambda qos: PriorityClass.BATCH in qos.forbidden_priorities) == {"LSR"}
