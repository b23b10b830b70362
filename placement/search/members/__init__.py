"""Members that are placed together under rules.

places of each rule -> candidates of each kind of member as a table -> the best one after another -> all ways
"""
