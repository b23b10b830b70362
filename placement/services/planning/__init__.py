"""Questions about more than one request: how many more there is room for, and what if."""
