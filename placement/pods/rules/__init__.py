"""The rules by which nodes refuse pods, in the order in which they count and are explained."""

from placement.pods.rules.amounts import AmplifiedCpu, HostAmounts
from placement.pods.rules.between_pods import Affinity, BetweenPods, TopologySpread
from placement.pods.rules.numa import CpusAndNumaNodes, MatchingPolicies
from placement.pods.rules.rule import Rule
from placement.pods.rules.selection import Labels, Taints

# Reservations of a node change nothing about the selection of nodes; they change all that follows.
SELECTION: tuple[Rule, ...] = (Taints(), Labels())
AMOUNTS: tuple[Rule, ...] = (HostAmounts(),)
HOST: tuple[Rule, ...] = (MatchingPolicies(), AmplifiedCpu(), CpusAndNumaNodes())
BETWEEN_PODS: tuple[BetweenPods, ...] = (TopologySpread(), Affinity())
RULES = (*SELECTION, *AMOUNTS, *HOST, *BETWEEN_PODS)
