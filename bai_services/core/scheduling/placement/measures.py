"""Fragmentation of the devices of a group."""

from __future__ import annotations

import numpy as np

from .compiled import columns as c
from .compiled.columns import Columns, Costs


def fragmentation(columns: Columns, costs: Costs) -> float:
    """Return the fraction (0 to 1) of all device capacity that is free but unusable for a typical
    request.

    This is the measure published with fragmentation gradient descent. The unusable free capacity is
    summed for each typical request; the result is the mean of these sums, weighted by the frequency
    of the requests.
    """
    facts = columns.facts
    is_device = facts[:, :, c.CAPACITY] > 0
    capacity = int(np.where(is_device, facts[:, :, c.CAPACITY], 0).sum())
    if capacity == 0:
        return 0.0
    free = np.where(is_device, columns.free, 0).clip(0)
    total = free.sum(axis=1)
    lost = 0.0
    for request, frequency in zip(costs.typical, costs.frequency, strict=True):
        cpu, family, devices, share, models = (int(n) for n in request)
        is_usable = is_device & (facts[:, :, c.FAMILY] == family) & (free >= share)
        if models != c.ANY:
            is_usable &= (models >> facts[:, :, c.MODEL].clip(0, 62)) & 1 == 1
        fits = (
            (devices > 0) & (columns.agents[:, c.CPU] >= cpu) & (is_usable.sum(axis=1) >= devices)
        )
        unusable = np.where(fits, np.where(is_usable, 0, free).sum(axis=1), total)
        lost += float(frequency) * int(unusable.sum())
    return lost / capacity
