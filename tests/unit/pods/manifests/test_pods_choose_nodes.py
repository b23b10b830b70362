"""Names, labels and taints decide where a pod may go as they do in Kubernetes."""

from types import SimpleNamespace

import pytest

from placement.common.manifest import Field, ManifestReport
from placement.pods.decide.rules import SELECTION
from placement.pods.decide.rules.rule import IncomingPod
from placement.pods.decide.rules.selection import NOT_SELECTED, UNSCHEDULABLE, UNTOLERATED
from placement.pods.manifests.selection import read_attributes, read_node_selection
from placement.pods.state.model import NO_REQUEST

GPU = {"key": "gpu", "value": "a100", "effect": "NoSchedule"}


def refused(spec, labels=(), taints=(), **node_spec):
    """The words of the refusal by a node of these labels and taints, None if the pod may go there."""
    report = ManifestReport()
    selection = read_node_selection(Field("Pod.spec", spec, report))
    report.raise_findings()
    node = {
        "metadata": {"name": "node-1", "labels": dict(labels)},
        "spec": {"taints": list(taints), **node_spec},
    }
    pod, attributes = IncomingPod(NO_REQUEST, selection), SimpleNamespace(attributes=read_attributes(node))
    refusals = (rule.refuse(attributes, pod) for rule in SELECTION)
    return next((refusal.reasons[0] for refusal in refusals if refusal is not None), None)


def affinity(*terms):
    required = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def labels(*expressions):
    keys = ("key", "operator", "values")
    return {"matchExpressions": [dict(zip(keys, expression, strict=False)) for expression in expressions]}


@pytest.mark.parametrize(
    ("toleration", "is_tolerated"),
    [
        ({"key": "gpu", "operator": "Equal", "value": "a100", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "value": "a100"}, True),  # Equal if nothing is said, and every effect
        ({"key": "gpu", "value": "h100"}, False),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "disk", "operator": "Exists"}, False),
        ({"operator": "Exists"}, True),
    ],
)
def test_taints_keep_pods_off_that_do_not_tolerate_them(toleration, is_tolerated):
    words = refused({"tolerations": [toleration]}, taints=[GPU])
    assert words == (None if is_tolerated else f"{UNTOLERATED} {{gpu: a100}}")


def test_a_taint_that_only_prefers_keeps_nobody_off_and_a_cordon_only_the_intolerant():
    assert refused({}, taints=[{**GPU, "effect": "PreferNoSchedule"}]) is None
    assert refused({}, taints=[{**GPU, "effect": "NoExecute"}]) == f"{UNTOLERATED} {{gpu: a100}}"
    assert refused({}, unschedulable=True) == UNSCHEDULABLE
    tolerant = {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}
    assert refused(tolerant, unschedulable=True) is None


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        (("zone", "In", ["a", "b"]), True),
        (("zone", "In", ["b"]), False),
        (("rack", "In", ["a"]), False),
        (("zone", "NotIn", ["a"]), False),
        (("rack", "NotIn", ["a"]), True),  # a node without the label has none of the values
        (("zone", "Exists"), True),
        (("rack", "Exists"), False),
        (("rack", "DoesNotExist"), True),
        (("zone", "DoesNotExist"), False),
        (("cores", "Gt", ["9"]), True),  # as numbers: as texts 10 comes before 9
        (("cores", "Gt", ["10"]), False),
        (("cores", "Lt", ["11"]), True),
        (("cores", "Lt", ["9"]), False),
        (("zone", "Gt", ["1"]), False),
        (("cores", "Gt", ["many"]), False),
        (("cores", "Lt", ["9223372036854775807"]), True),
        (("cores", "Gt", ["-1"]), False),  # no label has a sign, and kube-scheduler reads no bound with one
        (("cores", "Lt", ["+11"]), False),
        (("cores", "Lt", ["9223372036854775808"]), False),  # of more than 64 bits
        (("cores", "Gt", ["09"]), True),
        (("rack", "Lt", ["1"]), False),
    ],
)
def test_expressions_hold_for_labels(expression, holds):
    words = refused(affinity(labels(expression)), labels={"zone": "a", "cores": "10"})
    assert words == (None if holds else NOT_SELECTED)


@pytest.mark.parametrize("value", ["many", "", "1.5", "-1", "+4", "9223372036854775808", "9" * 5000])
def test_a_bound_that_is_no_integer_holds_nowhere_and_is_warned_of(value):
    report = ManifestReport()
    read_node_selection(Field("Pod.spec", affinity(labels(("cores", "Lt", [value]))), report))
    assert not report.findings
    assert "is not an integer of 64 bits without a sign, so it holds nowhere" in report.warnings[0]
    assert refused(affinity(labels(("cores", "Lt", [value]))), labels={"cores": "1"}) == NOT_SELECTED
    # Another term may hold.
    either = affinity(labels(("cores", "Lt", [value])), labels(("cores", "Gt", ["0"])))
    assert refused(either, labels={"cores": "1"}) is None


def test_one_term_has_to_hold_and_all_of_it():
    here, elsewhere = ("zone", "In", ["a"]), ("zone", "In", ["b"])
    node = {"zone": "a"}
    assert refused(affinity(labels(elsewhere), labels(here)), labels=node) is None
    assert refused(affinity(labels(here, elsewhere)), labels=node) == NOT_SELECTED
    assert refused(affinity({}), labels=node) == NOT_SELECTED
    assert refused(affinity(), labels=node) == NOT_SELECTED
    for name, words in (("node-1", None), ("node-2", NOT_SELECTED)):
        fields = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
        assert refused(affinity(fields)) == words


def test_a_selector_wants_every_label():
    wanted = {"nodeSelector": {"zone": "a", "disk": "ssd"}}
    assert refused(wanted, labels={"zone": "a", "disk": "ssd", "rack": "1"}) is None
    assert refused(wanted, labels={"zone": "a"}) == NOT_SELECTED


@pytest.mark.parametrize(
    ("spec", "finding"),
    [
        (affinity(labels(("zone", "Like", ["a"]))), "[0].operator: 'Like' is not one of In"),
        (affinity(labels(("zone", "In", []))), "[0].values: In takes at least one value"),
        (affinity(labels(("cores", "Gt", ["1", "2"]))), "[0].values: Gt takes one integer"),
        ({"tolerations": [{"operator": "Equal"}]}, "[0].operator: must be Exists when the key is empty"),
        ({"tolerations": [{"key": "gpu", "operator": "In"}]}, "[0].operator: must be Equal or Exists"),
        (
            {"tolerations": [{"key": "gpu", "effect": "Never"}]},
            "[0].effect: 'Never' is not one of NoSchedule",
        ),
    ],
)
def test_what_is_not_understood_is_named(spec, finding):
    report = ManifestReport()
    read_node_selection(Field("Pod.spec", spec, report))
    assert [finding in str(said) for said in report.findings] == [True]
