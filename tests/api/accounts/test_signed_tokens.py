"""`POST /auth/signed-tokens`: each token of another site is accepted once."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
import sqlalchemy as sa

from bai_services.core.errors import Conflict, InvalidRequest
from bai_services.db.tables.external_identities import used_signed_tokens
from tests.testbed.manager import Api


async def redeem(api: Api, digit: str, seconds: int = 60) -> None:
    expires_at = api.world.clock() + timedelta(seconds=seconds)
    body = {"token_hash": digit * 64, "expires_at": expires_at.isoformat()}
    await api.hub.post("/auth/signed-tokens", body)


@pytest.mark.both_databases
async def test_a_token_is_redeemed_once_and_forgotten_after_its_end(api: Api) -> None:
    results = await asyncio.gather(*(redeem(api, "a") for _ in range(5)), return_exceptions=True)
    assert sorted(type(r).__name__ for r in results) == ["Conflict"] * 4 + ["NoneType"]
    await redeem(api, "b")
    with pytest.raises(Conflict):
        await redeem(api, "b")
    for seconds in (-1, 3600):
        with pytest.raises(InvalidRequest):
            await redeem(api, "c", seconds)
    with pytest.raises(InvalidRequest, match="token_hash"):
        await redeem(api, "x")
    api.world.clock.advance(seconds=61)
    await redeem(api, "c")
    async with api.world.manager.database.read() as tx:
        assert await tx.scalar(sa.select(sa.func.count()).select_from(used_signed_tokens)) == 1
