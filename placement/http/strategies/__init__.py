"""The strategies by which callers are identified, a module each."""
