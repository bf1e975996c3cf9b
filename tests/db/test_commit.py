"""Commits of decisions: number of statements, and decisions that are no longer valid."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.core.scheduling.queue import Decision, run_pass
from bai_services.core.sessions.lifecycle import Status
from bai_services.db.tables import cluster

from .world import NOW, World, make_world

# The last two indexes would read all pending sessions and all live allocations.
INDEXES = ("pk_sessions", "ix_sessions_status_owner", "ix_allocations_live")


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    made = await make_world(database_url)
    yield made
    await made.close()


async def create_decisions(world: World, *shares: str) -> tuple[Decision, ...]:
    """Create a session for each share; return the decisions that place the sessions."""
    count = len(await world.sessions.in_status(*Status))
    for number, share in enumerate(shares, count):
        slots = {"cpu": "0.1", "mem": "64m", "cuda.shares": share}
        await world.sessions.enqueue(world.new_session(f"lab{number}", slots), NOW)
    decisions = run_pass(await world.queue.snapshot(NOW)).decisions
    assert len(decisions) == len(shares)
    return decisions


@contextmanager
def statements() -> Iterator[list[bool]]:
    """Yield a list with one entry for each executed statement: true for an executemany."""
    seen: list[bool] = []

    def record_statement(*args: object) -> None:
        seen.append(bool(args[-1]))

    sa.event.listen(sa.Engine, "before_cursor_execute", record_statement)
    try:
        yield seen
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", record_statement)


async def test_number_of_statements_is_independent_of_number_of_decisions(
    postgres_url: str,
) -> None:
    world = await make_world(postgres_url)
    try:
        one, many = [], []
        for shares, counts in ((["0.1"], one), (["0.1"] * 9, many)):
            decisions = await create_decisions(world, *shares)
            with statements() as seen:
                committed = await world.queue.commit(decisions, NOW, None)
            assert len(committed.placed) == len(shares)
            counts += seen
        assert many == one
        assert not any(many)
        assert await world.allocations.audit() == []
    finally:
        await world.close()


async def test_rows_are_found_by_id_without_statistics(postgres_url: str) -> None:
    """A placement must not read all pending sessions or all live allocations.

    Without statistics of the tables, PostgreSQL assumes that few sessions have a given status.
    """
    world = await make_world(postgres_url)
    seen: list[tuple[str, Any]] = []

    def record(_: object, __: object, text: str, values: Any, *___: object) -> None:
        seen.append((text, values))

    try:
        await create_decisions(world, *["0.1"] * 8)
        decisions = run_pass(await world.queue.snapshot(NOW)).decisions
        sa.event.listen(sa.Engine, "before_cursor_execute", record)
        try:
            committed = await world.queue.commit(decisions, NOW, None)
        finally:
            sa.event.remove(sa.Engine, "before_cursor_execute", record)
        assert len(committed.placed) == 8
        async with world.database.dry_run() as tx:
            # Disable sequential scans: PostgreSQL would read a table of eight rows without an
            # index.
            await tx.execute(sa.text("SET LOCAL enable_seqscan = off"))
            plans = [
                str(row[0])
                for text, values in seen
                for row in await tx.exec_driver_sql(f"EXPLAIN {text}", values)
            ]
        used = {name for name in INDEXES for line in plans if f"{name} " in f"{line} "}
        assert used == {"pk_sessions"}
    finally:
        await world.close()


@pytest.mark.parametrize("is_uniform", [True, False])
async def test_commit_rejects_second_share_size_only_on_uniform_device(
    world: World, is_uniform: bool
) -> None:
    """Decide on shares of two sizes, then set the device's ``is_uniform``, then commit.

    With ``is_uniform``, all shares on the device must have the same size.
    """
    await world.write(
        sa.update(cluster.devices).where(cluster.devices.c.index > 0).values(is_healthy=False)
    )
    decisions = await create_decisions(world, "0.25", "0.5")
    facts = {"shares": {"level": "process", "is_uniform": is_uniform}}
    await world.write(sa.update(cluster.devices).values(facts=facts))
    committed = await world.queue.commit(decisions, NOW, None)
    names = tuple(d.session_id for d in decisions)
    assert committed.placed == (names[:1] if is_uniform else names)
    assert committed.lost == (names[1:] if is_uniform else ())
    assert await world.allocations.audit() == []
