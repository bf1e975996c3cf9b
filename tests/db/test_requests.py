"""Database queries for a session request: whether agents can mount subdirectories."""

from __future__ import annotations

import re
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.db.sessions.requests import RequestStore
from bai_services.db.tables.cluster import agents

from .world import make_world


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
