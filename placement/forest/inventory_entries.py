"""What the inventories of one resource class consist of, as columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placement.forest.arrays import HUGE, Amounts, Columns, Indices, Ratios, Shares


class Entries(Columns):
    """What searches look at of each entry, and the provider that it is of."""

    provider: Indices
    capacity_of: Amounts
    used: Amounts
    free: Amounts
    min_unit: Indices
    max_unit: Indices
    step_size: Indices


class Offers(Columns):
    """What makes the capacity of each entry; searches do not look at it, and usage does not change it."""

    total: Indices
    reserved: Indices
    ratio: Ratios


class Offered(NamedTuple):
    """Many inventories of one class as columns, in the order of `ProviderStates`."""

    total: Amounts
    reserved: Amounts
    min_unit: Amounts
    max_unit: Amounts
    step_size: Amounts
    used: Amounts
    ratio: Shares


def whole(offered: Shares) -> Amounts:
    """What may be handed out at most, as domain.inventory cuts it, within what columns hold."""
    return np.clip(np.trunc(offered), -HUGE, HUGE).astype(np.int64)


class EntryOf(Columns):
    """For each provider its entry."""

    entry: Indices
