"""`bai usage`, `bai admin usage`, `bai admin price`."""

from __future__ import annotations

from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

from .conftest import Bai, CompletedCommand
from .test_sessions import bring_to_running


def lines_of(answer: CompletedCommand) -> list[str]:
    """Return the lines of a table, without the spaces that align its columns."""
    assert answer.code == 0, answer.stderr
    return [" ".join(line.split()) for line in answer.stdout.splitlines() if line.strip()]


async def test_prices_are_set_and_reports_show_costs(bai: Bai, api: Api, agent: FakeAgent) -> None:
    set_prices = ("admin", "price", "set", "cpu=0.5", "gold/cpu=2", "--currency", "EUR")
    assert (await bai(*set_prices)).code == 0
    listed = await bai("admin", "price", "list")
    assert lines_of(listed) == [
        "RESOURCE GROUP SLOT PER HOUR",
        "all cpu 0.5 EUR",
        "gold cpu 2 EUR",
    ]
    wrong = await bai("admin", "price", "set", "cpu=cheap")
    assert wrong.code != 0 and "is not a price" in wrong.stderr
    await bai("session", "create", "my-lab", "-r", "cpu=1", "-r", "mem=1g", by="user")
    await bring_to_running(api, agent, "my-lab")
    api.world.clock.advance(minutes=12)
    own = await bai("usage", by="user")
    assert lines_of(own) == [
        "SLOT ALLOCATED USED WASTED WAITED COST ENERGY",
        "cpu 0.20 h not measured not measured - 0.10 EUR not measured",
        "mem 0.20 h not measured not measured - no price not measured",
        "sessions 0.20 h not measured not measured 0.00 h no price not measured",
    ]
    rows = (await bai("admin", "usage", "--by", "user", "--slot", "cpu", "--json")).document["rows"]
    assert [(row["name"], row["slot"], row["cost"]) for row in rows] == [("user", "cpu", 0.1)]
    others = await bai("usage", "--every", "day", by="user2")
    assert "no usage in this period" in others.stdout + others.stderr
