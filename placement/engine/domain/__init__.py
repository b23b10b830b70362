"""Values and rules: inventories, request groups, claims, explanations, errors; standard library only."""
