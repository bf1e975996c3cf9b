"""`bai usage`, `bai admin usage`, `bai admin price`."""

from __future__ import annotations

from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

from .conftest import Bai
from .test_sessions import bring_to_running


async def test_reports_and_prices(bai: Bai, api: Api, agent: FakeAgent) -> None:
    set_prices = ("admin", "price", "set", "cpu=0.5", "gold/cpu=2", "--currency", "EUR")
    assert (await bai(*set_prices)).code == 0
    listed = (await bai("admin", "price", "list")).stdout
    assert "0.5 EUR" in listed and "gold" in listed
    wrong = await bai("admin", "price", "set", "cpu=cheap")
    assert wrong.code != 0 and "is not a price" in wrong.stderr
    await bai("session", "create", "my-lab", "-r", "cpu=1", "-r", "mem=1g", by="user")
    await bring_to_running(api, agent, "my-lab")
    api.world.clock.advance(minutes=12)
    own = await bai("usage", "--every", "day", by="user")
    assert own.code == 0, own.stderr
    assert "unknown" in own.stdout and "EUR" in own.stdout and "0.2" in own.stdout
    rows = (await bai("admin", "usage", "--by", "user", "--slot", "cpu", "--json")).document["rows"]
    assert [row["name"] for row in rows] == ["user"]
    assert (await bai("usage", "--json", by="user2")).document["rows"] == []
