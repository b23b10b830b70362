"""Settings of clusters, to tell callers: what is checked, is checked by dialects.koordinator."""

from placement.api.schemas.base import VersionedSchema
from placement.api.schemas.fields import Boolean, Choice, Given, Sequence, String
from placement.dialects.koordinator.profile import Profile
from placement.dialects.koordinator.qos import QosClass
from placement.numa.demand import BindPolicy, ExclusiveLevel, NumaPolicy, NumaStrategy

# A name, a strategy, a list of them, or what kube-scheduler is configured with; by use, or for all.
_SCORING = Given(
    {
        "anyOf": [
            {"type": "string"},
            {"type": "object"},
            {"type": "array", "items": {"type": "object"}},
            {"type": "null"},
        ]
    }
)


class ClusterSettings(VersionedSchema):
    """PUT /ext/v1/clusters/{cluster}; what is left out, or null, has its default."""

    description = String()
    profile = Choice(list(Profile), nullable=True)
    nodeLabels = Sequence(String(1), nullable=True)
    defaultCPUBindPolicy = Choice(list(BindPolicy), nullable=True)
    defaultCPUExclusivePolicy = Choice(list(ExclusiveLevel), nullable=True)
    defaultNUMATopologyPolicy = Choice(list(NumaPolicy), nullable=True)
    numaAllocateStrategy = Choice(list(NumaStrategy), nullable=True)
    scoring = _SCORING
    hostScoring = _SCORING
    numaScoring = _SCORING
    guaranteedQoS = Choice(filter(None, QosClass), nullable=True)
    subPriorityImmutable = Boolean(nullable=True)
