"""Records of changes, and events about them."""
