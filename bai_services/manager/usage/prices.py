"""Prices of slots, for the costs in usage reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import InvalidRequest
from bai_services.core.resources import slot_type
from bai_services.core.usage.model import SESSIONS, Price, Prices
from bai_services.core.usage.records import UsagePrice, UsagePrices
from bai_services.db.usage.prices import UsagePriceStore

from ..accounts import authorizer
from ..audit import Audit


class PriceList:
    """Reads and replaces the prices.

    A new price applies to hours whose totals are computed after the change.
    """

    def __init__(self, store: UsagePriceStore, audit: Audit) -> None:
        self._store = store
        self._audit = audit

    async def read(self, caller: Caller) -> UsagePrices:
        authorizer.require(caller, "price.read")
        return _view(await self._store.read())

    async def replace(
        self, caller: Caller, currency: str, prices: Sequence[Mapping[str, Any]]
    ) -> UsagePrices:
        """Replace all prices.

        Raises
        ------
        InvalidRequest
            If a slot is invalid, or two prices have the same resource group and slot.
        """
        authorizer.require(caller, "price.write")
        new = Prices(
            currency,
            tuple(Price(p.get("resource_group") or "", p["slot"], p["per_hour"]) for p in prices),
        )
        for price in new.prices:
            if price.slot != SESSIONS:
                slot_type(price.slot)
        if len({(price.resource_group, price.slot) for price in new.prices}) < len(new.prices):
            raise InvalidRequest(
                "two prices have the same resource group and slot; remove one", field="prices"
            )
        before = _shown(await self._store.read())
        entry = self._audit.entry(
            caller,
            "usage-price.replace",
            "usage-prices",
            **self._audit.changes(before, {**dict.fromkeys(before), **_shown(new)}),
        )
        await self._store.replace(new, entry)
        return _view(new)


def _shown(prices: Prices) -> dict[str, Any]:
    """Return the currency, and the price of each slot or resource group and slot."""
    rows = {
        " ".join(filter(None, (price.resource_group, price.slot))): str(price.per_hour)
        for price in prices.prices
    }
    return {"currency": prices.currency, **rows}


def _view(prices: Prices) -> UsagePrices:
    return UsagePrices(
        prices.currency,
        tuple(UsagePrice(p.resource_group or None, p.slot, p.per_hour) for p in prices.prices),
    )
