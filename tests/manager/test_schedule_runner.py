"""A manager that is killed at any statement neither loses nor duplicates a scheduled start."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
import sqlalchemy as sa

from bai_services.core.listing import ListQuery
from bai_services.core.sessions.lifecycle import Status
from bai_services.db.scheduling.lease import LeaseStore
from bai_services.manager.context import ManagerContext
from bai_services.manager.manager import Manager
from bai_services.manager.scheduling.lease import Lease
from bai_services.manager.sessions.schedules.runner import ScheduleRunner
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

pytestmark = pytest.mark.both_databases


class KilledError(BaseException):
    """Ends a step as SIGKILL would: nothing catches it, and the open transaction is rolled back."""


@contextmanager
def killed_before(statement: int) -> Iterator[None]:
    """Raise ``KilledError`` before the statement or commit with this number (from 1)."""
    left = statement

    def count(*args: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KilledError

    sa.event.listen(sa.Engine, "before_cursor_execute", count)
    sa.event.listen(sa.Engine, "commit", count)
    try:
        yield
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", count)
        sa.event.remove(sa.Engine, "commit", count)


def runner_of(manager: Manager, lease: Lease) -> ScheduleRunner:
    """Return the runner of a manager that has just started."""
    context = ManagerContext(
        database=manager.database,
        clock=manager.clock,
        audit=manager.audit,
        events=manager.events,
        capacity_changed=manager.capacity_changed,
        sign_outs_due=manager.sign_outs_due,
        read_only=manager.read_only,
    )
    return ScheduleRunner(
        context,
        manager.sessions.sessions,
        manager.sessions.templates,
        manager.accounts.callers,
        manager.read_only.require_writable,
        lease=lease,
    )


async def test_start_happens_exactly_once_for_each_kill(api: Api) -> None:
    clock, manager = api.world.clock, api.world.manager
    caller = await api.world.caller("user")
    await FakeAgent(api.agent).beat()
    request = {"resources": {"cpu": "1", "mem": "1g"}}
    lease = Lease(LeaseStore(manager.database), clock, seconds=10**6)
    for number in itertools.count(1):
        name = f"work-{number}"
        start = (clock() + timedelta(minutes=1)).replace(second=0)
        stop = start + timedelta(minutes=1)
        rules = {"start": f"daily {start:%H:%M}", "stop": f"daily {stop:%H:%M}"}
        await manager.sessions.schedules.create(caller, {"name": name, "request": request, **rules})
        was_killed = False
        clock.now = start
        try:
            with killed_before(number):
                await runner_of(manager, lease).step()
        except KilledError:
            was_killed = True
        await runner_of(manager, lease).step()
        page = await manager.sessions.sessions.page(caller, ListQuery(filters={"name": name}))
        (session,) = page.items
        runs = await manager.sessions.schedules.runs(caller, name, ListQuery())
        assert [(run.id, run.status) for run in runs.items] == [(session.id, "started")]
        clock.now = stop
        try:
            with killed_before(number):
                await runner_of(manager, lease).step()
        except KilledError:
            was_killed = True
        await runner_of(manager, lease).step()
        assert (await manager.sessions.sessions.get(caller, name)).status is Status.CANCELLED
        runs = await manager.sessions.schedules.runs(caller, name, ListQuery())
        # If the manager was killed after the stop, its successor finds the session ended.
        assert runs.items[0].status in ("stopped", "ended")
        await manager.sessions.schedules.delete(caller, name)
        if not was_killed:
            break
    assert number > 10
