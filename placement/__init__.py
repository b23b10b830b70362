"""An allocation service that speaks the OpenStack Placement API and plans down to single cores."""

DISTRIBUTION = "placement-forest"
"""The name under which package managers know what was installed."""
