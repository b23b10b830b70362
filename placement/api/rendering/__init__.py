"""From values to bodies."""
