"""The capacity for a request: how many more of it fit, one after another."""
