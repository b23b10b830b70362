"""Provider trees as numpy columns, and changes applied to them."""
