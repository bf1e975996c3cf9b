"""JIT-compile the functions of placement and quotas before the first pass."""

from __future__ import annotations

from ...resources import ResourceSlots
from .. import placement
from ..caps import Scope, ScopeKind
from .quota import Quotas


def warm_up() -> None:
    """JIT-compile the functions of placement and quotas; see ``placement.warm_up``."""
    placement.warm_up()
    quotas = Quotas({}, {})
    rows = quotas.rows((Scope(ScopeKind.USER, "warm"),))
    need = quotas.need(ResourceSlots({"cpu": 1000}))
    quotas.exceeds_cap(rows, need)
    quotas.allocate(rows, need)


if __name__ == "__main__":
    warm_up()
