"""nova flavors: translated, and searched for."""
