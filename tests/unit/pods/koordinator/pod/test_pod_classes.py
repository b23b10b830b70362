"""What each QoS class answers; the rules about pods that have them are in the table of rules."""

from placement.pods.model import QosClass


def test_each_class_answers_what_its_pods_may():
    def those(answer):
        return {str(qos) for qos in QosClass if answer(qos)}

    assert those(lambda qos: qos.owns_cpus) == {"LSE", "LSR"}
    assert those(lambda qos: not qos.shares_with_best_effort) == {"LSE"}
    assert those(lambda qos: qos.uses_ls_pools) == {"LS"}
    assert those(lambda qos: qos.uses_system_cpus) == {"SYSTEM"}
