"""How many more of a request fit, one after another."""
