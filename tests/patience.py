"""How long tests wait for others: an upper bound for machines that are very busy, never a measure."""

PATIENCE_SECONDS = 300
