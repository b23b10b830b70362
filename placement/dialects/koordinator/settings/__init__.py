"""How a cluster wants its pods to be scheduled."""
