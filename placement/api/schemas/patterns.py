"""The patterns of names on the wire. Source: placement-api.md, "Identifiers, names, numbers"."""

NAME = "^[A-Z0-9_]+$"
CUSTOM_NAME = "^CUSTOM_[A-Z0-9_]+$"
UUID = "^[0-9a-fA-F-]{36}$"
# All but NUL, which no database holds.
ANYTHING = r"^[^\x00]*$"
LONGEST_NAME = 255
# Of request groups; empty for the one without.
SUFFIX = "^[a-zA-Z0-9_-]{0,64}$"
