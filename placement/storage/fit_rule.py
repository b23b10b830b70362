"""Whether what claims ask for fits an inventory, said in SQL: the one place where a claim is decided.

The statements that claim join a table `wanted` to `inventories`. A row of it says how the use of one
inventory changes: `delta` is the net change; `least`, `most` and `divisor` describe the new amounts, each of
which must respect the units: the smallest, the largest and the greatest common divisor, all 0 if there is
none.
"""

from __future__ import annotations

_UNITS = "wanted.least >= min_unit AND wanted.most <= max_unit AND wanted.divisor % step_size = 0"
_ROOM = "used + wanted.delta <= (total - reserved) * allocation_ratio"
# For a rise by new amounts; what cannot be otherwise is not asked, which would make for other plans.
RISE_FITS = f"{_UNITS} AND {_ROOM}"
# For any change. One that does not raise the use is never refused for capacity (Placement API, when an
# allocation fits).
CHANGE_FITS = f"(wanted.most = 0 OR ({_UNITS})) AND (wanted.delta <= 0 OR {_ROOM})"
