"""How many more requests fit, also in imagined clusters, and which moves make room."""
