"""Nova flavors and image properties, translated to a Placement query and a guest CPU layout.

Only values go in and out; it uses the standard library and the engine only. `translation` draws the pipeline;
each module is named after the subject of its rules. It is tested in
tests/unit/flavors/nova and, case by case, through tests/cases/flavor.py.
"""
