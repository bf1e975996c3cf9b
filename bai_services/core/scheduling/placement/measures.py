"""How well the devices of a group are used."""

from __future__ import annotations

import numpy as np

from . import columns as c
from .columns import Columns, Costs


def fragmented(columns: Columns, costs: Costs) -> float:
    """Return the fraction of all device capacity that is free but unusable for a typical request.

    This is the published measure: the mean, over the typical requests, of the free capacity on each
    agent that the request could not use. It lies between 0 and 1.
    """
    facts = columns.facts
    is_device = facts[:, :, c.CAPACITY] > 0
    capacity = int(np.where(is_device, facts[:, :, c.CAPACITY], 0).sum())
    if capacity == 0:
        return 0.0
    free = np.where(is_device, columns.free, 0).clip(0)
    total = free.sum(axis=1)
    lost = 0.0
    for ask, portion in zip(costs.typical, costs.portion, strict=True):
        cpu, family, devices, amount, models = (int(n) for n in ask)
        serving = is_device & (facts[:, :, c.FAMILY] == family) & (free >= amount)
        if models != c.ANY:
            serving &= (models >> facts[:, :, c.MODEL].clip(0, 62)) & 1 == 1
        is_able = (
            (devices > 0) & (columns.agents[:, c.CPU] >= cpu) & (serving.sum(axis=1) >= devices)
        )
        unusable = np.where(is_able, np.where(serving, 0, free).sum(axis=1), total)
        lost += float(portion) * int(unusable.sum())
    return lost / capacity
