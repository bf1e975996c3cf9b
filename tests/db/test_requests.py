"""Database queries for a session request: support of subpath mounts, and own sessions by key."""

from __future__ import annotations

import re
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.core.sessions.lifecycle import Event
from bai_services.db.scheduling.caps import CHUNK
from bai_services.db.sessions.requests import RequestStore
from bai_services.db.tables.cluster import agents

from .world import NOW, make_world


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param([], True, id="no agents"),
        pytest.param([{"binds_subpaths": False}], False, id="no agent supports subpaths"),
        pytest.param(
            [{"binds_subpaths": False}, {"binds_subpaths": True}],
            True,
            id="one agent supports subpaths",
        ),
        pytest.param(
            [{"binds_subpaths": False}, {}],
            True,
            id="one agent does not report whether it supports subpaths",
        ),
    ],
)
async def test_support_of_subpath_mounts_is_read_without_the_other_facts(
    database_url: str, facts: list[dict[str, bool]], expected: bool
) -> None:
    """The query does not read the other facts of agents, because they can be large."""
    world = await make_world(database_url)
    try:
        await world.write(sa.delete(agents))
        for number, fact in enumerate(facts):
            await world.add_agent(f"n{number}", gpus=0)
            change = sa.update(agents).where(agents.c.id == f"n{number}")
            await world.write(change.values(facts={**fact, "notices": ["x" * 10_000]}))
        statements: list[str] = []

        def record_statement(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
            statements.append(statement)

        sa.event.listen(sa.Engine, "before_cursor_execute", record_statement)
        try:
            assert await RequestStore(world.database).binds_subpaths("main") is expected
        finally:
            sa.event.remove(sa.Engine, "before_cursor_execute", record_statement)
        (select,) = [text for text in statements if "agents" in text]
        assert not re.search(r"(SELECT|,)\s+(DISTINCT )?agents\.facts", select), select
    finally:
        await world.close()


async def test_newest_session_of_a_name_is_found_among_more_keys_than_a_chunk(
    database_url: str,
) -> None:
    world = await make_world(database_url)
    try:
        ended = []
        for _ in range(2):
            session, _ = await world.sessions.enqueue(world.new_session("lab"), NOW)
            await world.sessions.move(session.id, Event.STOP_REQUESTED, NOW)
            ended.append(session.id)
        others = [f"other-{number}" for number in range(CHUNK)]
        keys = ["lab", *others, ended[0]]
        found = await RequestStore(world.database).own_sessions("u1", keys)
        assert {key: found[key].id for key in ("lab", ended[0])} == {
            "lab": ended[1],
            ended[0]: ended[0],
        }
    finally:
        await world.close()
