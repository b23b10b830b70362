"""Answers about pods, those of the scheduler extender among them."""

from placement.api.schemas.answers.base import OPTIONAL, Answer, Error, texts
from placement.api.schemas.answers.candidates import ExplanationShown
from placement.api.schemas.fields import (
    Boolean,
    Choice,
    Integer,
    Mapping,
    NullableUuid,
    Object,
    Sequence,
    String,
    Uuid,
)
from placement.numa.refusal import RefusalClass

_ANNOTATIONS = Mapping("", String(), shown_pattern="^.*$")


class Container(Answer):
    """A container of a pod, and its CPUs if it has a node; null if they are not known."""

    name = String()
    lift_cfs_quota = Boolean()
    cpuset = String(nullable=True, metadata=OPTIONAL)


class Pod(Answer):
    """A pod, its place and what it was given."""

    cluster = String()
    namespace = String()
    name = String()
    uid = String()
    consumer_uuid = Uuid()
    node = String(nullable=True)
    resource_provider = NullableUuid()
    phase = String()
    qos_class = String(nullable=True)
    kubernetes_qos_class = String()
    scheduled = Boolean()
    cpuset = String()
    annotations = _ANNOTATIONS
    containers = Sequence(Object(Container))
    score = Integer(nullable=True)
    warnings = texts()
    remarks = texts()
    unreadable = texts()
    # Of lists of claims only.
    changed_at = String(metadata=OPTIONAL)


class PodOutcome(Answer):
    """What became of one of many pods, by the name that its manifest says, or what is wrong."""

    status = Integer(200, 599)
    namespace = String(nullable=True)
    name = String(nullable=True)
    pod = Object(Pod, metadata=OPTIONAL)
    error = Object(Error, metadata=OPTIONAL)


class PodsTaken(Answer):
    """What became of each of many pods, in their order."""

    cluster = String()
    pods = Sequence(Object(PodOutcome))


class Pods(Answer):
    """Pods in the order in which they were recorded; `next` is the `marker` of the following page."""

    pods = Sequence(Object(Pod))
    next = Integer(nullable=True)


class PossiblePlace(Answer):
    """A node on which a pod would fit."""

    name = String()
    resource_provider = Uuid()
    score = Integer()
    cpuset = String()
    annotations = _ANNOTATIONS
    remarks = texts()


class RefusingNode(Answer):
    """A node that refuses a pod, and why."""

    node = String()
    reasons = texts()
    status = Choice(list(RefusalClass))


class Preview(Answer):
    """Where a pod would go, best first, and why not elsewhere."""

    cluster = String()
    message = String()
    nodes = Sequence(Object(PossiblePlace))
    fitting = Integer()
    rejected = Sequence(Object(RefusingNode))
    explanation = Object(ExplanationShown)
    warnings = texts()


class MeantQuery(Answer):
    """A query, and what it stands for."""

    meaning = String()
    query = String()


class PodTranslation(Answer):
    """A pod as queries, best first, and what they leave out."""

    queries = Sequence(Object(MeantQuery))
    not_expressed = texts()
    warnings = texts()


class PodError(Error):
    """An error; of a pod that no node can take with the reasons of the nodes."""

    nodes = Sequence(Object(RefusingNode), metadata=OPTIONAL)
    nodes_omitted = Integer(metadata=OPTIONAL)
    explanation = Object(ExplanationShown, metadata=OPTIONAL)
