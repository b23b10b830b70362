"""How many more fit, what would be, and which moves make room."""
