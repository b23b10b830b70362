"""Records of who changed what, and what they tell of changes."""
