"""Query plans of lists. SQLite only: PostgreSQL's plans depend on the number of rows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.core.accounts.roles import Role, Visibility
from bai_services.core.listing import ListQuery
from bai_services.core.scheduling.queue import run_pass
from bai_services.core.sessions.lifecycle import Event

from .world import World, make_world

pytestmark = pytest.mark.sqlite_only

RUNNING = "PREPARING,PREPARED,RUNNING,TERMINATING"
WAITING = "PENDING,SCHEDULED"
ENDED = "TERMINATED,CANCELLED,ERROR"


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    world = await make_world(database_url)
    yield world
    await world.close()


@pytest.mark.parametrize(
    "query",
    [
        pytest.param(ListQuery(limit=1), id="first page"),
        pytest.param(ListQuery(limit=1, offset=1), id="next page"),
        pytest.param(ListQuery(limit=1, sort=["created_at"]), id="oldest first"),
        pytest.param(ListQuery(limit=1, sort=["name"]), id="by name"),
        pytest.param(ListQuery(limit=1, sort=["-name"]), id="by name, descending"),
        pytest.param(ListQuery(limit=1, sort=["-started_at"]), id="by start"),
        pytest.param(
            ListQuery(limit=1, sort=["created_at"], filters={"status__in": WAITING}),
            id="waiting, oldest first",
        ),
        pytest.param(ListQuery(limit=1, filters={"project": "p"}), id="project"),
        pytest.param(ListQuery(limit=1, filters={"owner": "ann"}), id="owner"),
        pytest.param(ListQuery(limit=1, filters={"status__in": RUNNING}), id="running"),
        pytest.param(ListQuery(limit=1, filters={"status__in": WAITING}), id="waiting"),
        pytest.param(ListQuery(limit=1, filters={"status__in": ENDED}), id="ended"),
        pytest.param(ListQuery(limit=1, filters={"status": "RUNNING"}), id="one live status"),
        pytest.param(ListQuery(limit=1, filters={"status": "ERROR"}), id="one final status"),
        pytest.param(
            ListQuery(limit=1, filters={"owner": "ann", "status__in": WAITING}), id="owner, waiting"
        ),
        pytest.param(
            ListQuery(limit=1, filters={"owner": "ann", "status__in": ENDED}), id="owner, ended"
        ),
        pytest.param(
            ListQuery(limit=1, sort=["name"], filters={"status__in": ENDED}), id="ended, by name"
        ),
    ],
)
@pytest.mark.parametrize(
    "visible",
    [
        pytest.param(Visibility(), id="superadmin"),
        pytest.param(Visibility(hidden_roles=frozenset({Role.SUPERADMIN})), id="monitor"),
    ],
)
async def test_page_of_sessions_is_read_in_index_order(
    world: World, query: ListQuery, visible: Visibility
) -> None:
    assert "USE TEMP B-TREE" not in await plan_of_page(world, query, visible)


async def test_page_of_own_sessions_is_read_in_index_order(world: World) -> None:
    plan = await plan_of_page(world, ListQuery(limit=1), Visibility(owner_id="u1"))
    assert plan == "SEARCH sessions USING INDEX ix_sessions_owner_created (owner_id=?)"


async def test_live_sessions_are_read_from_small_index(world: World) -> None:
    query = ListQuery(limit=1, filters={"status__in": WAITING})
    mine = await plan_of_page(world, query, Visibility(owner_id="u1"))
    assert mine == "SEARCH sessions USING INDEX ix_sessions_live_owner (owner_id=?)"
    every = await plan_of_page(world, query, Visibility())
    assert every == "SCAN sessions USING INDEX ix_sessions_live"


async def test_rows_of_placed_sessions_are_found_by_id(world: World) -> None:
    """A placement must not read all pending sessions or all live allocations."""
    await world.add_agent("large", cpu=64, mem=512, gpus=0)
    slots = {"cpu": "1", "mem": "1g"}
    news = [world.new_session(f"lab{number}", slots) for number in range(30)]
    rows = await world.sessions.enqueue_all(news, world.advance())
    decisions = run_pass(await world.queue.snapshot(world.now)).decisions
    assert len(decisions) == len(news)
    statements = []

    def record(_: object, __: object, text: str, values: object, *___: object) -> None:
        if " IN (" in text or "allocations" in text:
            statements.append((text, values))

    sa.event.listen(sa.Engine, "before_cursor_execute", record)
    try:
        await world.queue.commit(decisions, world.now, token=None)
        await world.sessions.move(rows[0][0].id, Event.FAILED, world.advance())
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", record)
    used = set()
    async with world.database.read() as tx:
        for text, values in statements:
            if not text.startswith("INSERT INTO allocations"):
                plan = await tx.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values)
                used |= {row.detail for row in plan}
    assert {line for line in used if " sessions " in line or " allocations " in line} == {
        "SEARCH allocations USING INDEX ix_allocations_session_id (session_id=?)",
        "SEARCH sessions USING INDEX sqlite_autoindex_sessions_1 (id=?)",
    }


async def plan_of_page(world: World, query: ListQuery, visible: Visibility) -> str:
    """Return SQLite's query plan for the SELECT of the session ids of a page."""
    for name in ("lab", "other"):
        await world.sessions.enqueue(world.new_session(name), world.advance())
    statements: list[tuple[str, Any]] = []

    def record(_: object, __: object, text: str, values: object, *___: object) -> None:
        if text.startswith("SELECT sessions.id") and "ORDER BY" in text and "LIMIT" in text:
            statements.append((text, values))

    sa.event.listen(sa.Engine, "before_cursor_execute", record)
    try:
        await world.sessions.page(query, visible)
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", record)
    [(text, values)] = statements
    async with world.database.read() as tx:
        plan = await tx.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values)
        return "\n".join(row.detail for row in plan)
