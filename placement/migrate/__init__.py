"""Moving over from OpenStack Placement, and back."""
