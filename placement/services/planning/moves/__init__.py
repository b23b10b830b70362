"""Plans: which moves would make room, or leave hosts empty."""
