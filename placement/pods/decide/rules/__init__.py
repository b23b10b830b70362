"""The rules by which nodes refuse pods, in the order in which they count and are explained."""

from placement.pods.decide.rules.amounts import AmplifiedCpu, HostAmounts
from placement.pods.decide.rules.between_pods import Affinity, BetweenPods, TopologySpread
from placement.pods.decide.rules.numa import CpusAndNumaNodes, MatchingPolicies
from placement.pods.decide.rules.ports import FreeHostPorts
from placement.pods.decide.rules.rule import Rule
from placement.pods.decide.rules.selection import Labels, Taints

# Reservations of a node change nothing about the selection of nodes; they change all that follows.
SELECTION: tuple[Rule, ...] = (Taints(), Labels())
# A pod that uses a reservation may have its ports, so `ReservationLooks` asks about the node without it.
PORTS = FreeHostPorts()
# One rule, and no place for others: where a pod may use a reservation, `ReservationLooks` counts amounts
# itself, with what the reservation has left. It asks the rules before and after this one.
AMOUNTS = HostAmounts()
HOST: tuple[Rule, ...] = (MatchingPolicies(), AmplifiedCpu(), CpusAndNumaNodes())
# In RULES for their stages of an explanation. They concern no pod as the ranking of its shape sees it, as the
# labels of a pod are no part of its shape: `RulesBetweenPods` asks them about each pod.
BETWEEN_PODS: tuple[BetweenPods, ...] = (TopologySpread(), Affinity())
RULES: tuple[Rule, ...] = (*SELECTION, PORTS, AMOUNTS, *HOST, *BETWEEN_PODS)
