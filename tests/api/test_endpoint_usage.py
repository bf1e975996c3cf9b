"""`/endpoint-usage`: sums by group and interval, permissions, CSV; deleted endpoints."""

from __future__ import annotations

import csv
import io
from datetime import timedelta
from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core.errors import InvalidRequest, NotFound
from bai_services.core.serving.gateway_records import ANONYMOUS
from tests.testbed.manager import Api

from .serving.test_endpoints import make, report_use, step


async def sums(client: Client, **query: str) -> dict[tuple[str, str], tuple[int, int, int]]:
    """Return requests, input and output tokens by interval and group."""
    found = await client.get("/endpoint-usage", **query)
    return {
        (row["start"][5:10], row["name"]): (
            row["requests"], row["input_tokens"], row["output_tokens"],
        )
        for row in found["rows"]
    }  # fmt: skip


async def used_endpoints(api: Api) -> None:
    """Create `llm` of user with two used tokens on two days, and `chat` of user2 with one."""
    user, user2 = await api.client("user"), await api.client("user2")
    llm = await make(api, user, "llm")
    await make(api, user2, "chat")
    app = await user.post("/endpoints/llm/tokens", {"name": "app"})
    other = await user2.post("/endpoints/chat/tokens", {"name": "other"})
    await report_use(api, "g1", app["id"], other["id"], ANONYMOUS + llm["id"])
    api.world.clock.advance(days=1)
    await report_use(api, "g1", app["id"])


@pytest.mark.both_databases
async def test_report_has_the_sums_of_groups_and_intervals(api: Api) -> None:
    user, admin = await api.client("user"), await api.client("admin")
    clock = api.world.clock
    clock.now = clock.now.replace(day=10, hour=12)
    await used_endpoints(api)
    today, yesterday = clock.now, clock.now - timedelta(days=1)
    since = str(yesterday.date())
    first, last = f"{yesterday:%m-%d}", f"{today:%m-%d}"
    assert await sums(admin, since=since) == {(first, ""): (8, 120, 20)}
    assert await sums(admin, since=since, by="endpoint", every="day") == {
        (first, "llm"): (4, 60, 10),
        (first, "chat"): (2, 30, 5),
        (last, "llm"): (2, 30, 5),
    }
    assert await sums(admin, since=since, by="token", every="month") == {
        (first, "llm/app"): (4, 60, 10),
        (first, "llm/*"): (2, 30, 5),
        (first, "chat/other"): (2, 30, 5),
    }
    # A token has the owner of its endpoint.
    found = await admin.get("/endpoint-usage", since=since, by="token")
    owners = {row["name"]: row["owner"] for row in found["rows"]}
    assert owners == {"llm/app": "user", "llm/*": "user", "chat/other": "user2"}
    found = await admin.get("/endpoint-usage", since=since, by="project")
    assert [row["owner"] for row in found["rows"]] == [""]
    assert await sums(admin, since=since, by="user") == {
        (first, "user"): (6, 90, 15),
        (first, "user2"): (2, 30, 5),
    }
    assert await sums(admin, since=since, by="project") == {
        (first, "default/default"): (8, 120, 20)
    }
    assert await sums(admin, since=since, by="domain") == {(first, "default"): (8, 120, 20)}
    assert await sums(admin, since=since, until=str(today.date()), by="endpoint", limit="1") == {
        (first, "llm"): (4, 60, 10)
    }
    found = await admin.get("/endpoint-usage", by="endpoint", limit="1")
    assert (len(found["rows"]), found["groups"]) == (1, 2)
    # The statistics remain when the endpoint is deleted.
    await user.delete("/endpoints/llm")
    await step(api)
    with pytest.raises(NotFound):
        await user.get("/endpoints/llm")
    assert await sums(user, since=since, by="endpoint") == {(first, "llm"): (6, 90, 15)}


async def test_report_contains_only_endpoints_that_the_role_may_see(api: Api) -> None:
    user, user2, admin = [await api.client(name) for name in ("user", "user2", "admin")]
    await used_endpoints(api)

    async def names(client: Client, **query: str) -> set[str]:
        return {name for _, name in await sums(client, by="endpoint", **query)}

    assert await names(user) == {"llm"}
    assert await names(user2) == {"chat"}
    assert await names(admin) == {"llm", "chat"}
    assert await names(admin, user="user2") == {"chat"}
    assert await names(admin, endpoint="chat") == {"chat"}
    assert await names(user, endpoint="chat") == set()
    assert await names(admin, own="true") == set()
    with pytest.raises(NotFound):
        await sums(user, user="user2")


@pytest.mark.parametrize(
    "query",
    [
        {"every": "hour"},
        {"by": "image"},
        {"limit": "0"},
        {"since": "2001-01-01"},
        {"since": "2026-01-02", "until": "2026-01-01"},
        {"format": "xml"},
    ],
)
async def test_malformed_query_is_rejected(api: Api, query: dict[str, Any]) -> None:
    user = await api.client("user")
    with pytest.raises(InvalidRequest):
        await user.get("/endpoint-usage", **query)


async def test_csv_has_one_line_for_each_row(api: Api) -> None:
    user = await api.client("user")
    await used_endpoints(api)
    query = {"by": "token", "every": "day"}
    rows = (await user.get("/endpoint-usage", **query))["rows"]
    async with user.stream("/endpoint-usage", format="csv", **query) as response:
        assert 'filename="endpoint-usage.csv"' in response.headers["Content-Disposition"]
        text = (await response.aread()).decode("utf-8-sig")
    lines = list(csv.DictReader(io.StringIO(text)))
    for column in ("owner", "name", "requests"):
        assert [line[column] for line in lines] == [str(row[column]) for row in rows] != []
    assert {line["owner"] for line in lines} == {"user"}
