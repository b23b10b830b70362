"""An allocation service that speaks the OpenStack Placement API and plans down to single cores."""
