"""Rules about the place of a pod."""
