"""Idle checkers stop idle sessions, but not because of a gap, a restart or a clock change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.core.errors import Conflict
from bai_services.core.listing import ListQuery
from bai_services.core.sessions.idle_checks.checkers import CheckerSettings, CheckerType
from bai_services.core.sessions.lifecycle import Event, Status
from bai_services.core.sessions.usage_history import COARSE, FINE, Sample
from bai_services.db.scheduling.lease import LeaseStore
from bai_services.db.sessions.idle_checks.checkers import IdleCheckerStore
from bai_services.db.sessions.idle_checks.store import IdleCheckStore
from bai_services.db.sessions.store import SessionStore
from bai_services.db.sessions.usage_samples import UsageSampleStore
from bai_services.db.tables import accounts, idle_checks
from bai_services.db.tables import sessions as tables
from bai_services.manager.events import Events
from bai_services.manager.metrics import Metrics
from bai_services.manager.scheduling.lease import Lease
from bai_services.manager.sessions.idle_checks.judging import IdleJudging
from bai_services.manager.sessions.lifecycle import Lifecycle
from bai_services.manager.sessions.planned_stops import PlannedStops
from tests.db.world import NOW, World, make_world
from tests.testbed.kills import kill_everywhere, until_killed

pytestmark = pytest.mark.both_databases

SETTINGS = CheckerSettings(300, thresholds={"cpu_util": 5, "cuda_util": 5})
# The devices of an agent's report.
INJECTION = {"devices": [{"id": "g0", "family": "cuda", "memory_bytes": 1000}]}


class Office:
    """A database with running sessions, and the clocks of a manager."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.now = NOW
        self.monotonic = 0.0
        self.samples = UsageSampleStore(world.database)
        self.store = IdleCheckStore(world.database)
        self.checkers = IdleCheckerStore(world.database)
        self.kernels: dict[str, str] = {}
        self.lease = self.new_lease()
        self.judging = self.new_judging()

    def new_lease(self) -> Lease:
        return Lease(LeaseStore(self.world.database), lambda: self.now, seconds=600)

    def new_judging(self, lease: Lease | None = None) -> IdleJudging:
        """Return the judging of a manager that has just started."""
        database = self.world.database
        return IdleJudging(
            IdleCheckStore(database),
            UsageSampleStore(database),
            PlannedStops(Lifecycle(SessionStore(database), Events(), lambda: self.now)),
            lambda: self.now,
            lease=lease or self.lease,
            metrics=Metrics(),
            monotonic=lambda: self.monotonic,
        )

    async def add_session(self, name: str) -> str:
        """Start a session; return its id."""
        await self.world.sessions.enqueue(self.world.new_session(name), NOW)
        await self.world.run_pass()
        (row,) = await self.world.sessions.in_status(Status.SCHEDULED)
        view = await self.world.sessions.view(row.id)
        await self.world.sessions.move(row.id, Event.DISPATCHED, NOW)
        await self.world.kernels.set_injection(row.id, view.kernels[0].id, INJECTION, None)
        for event in (Event.PREPARED, Event.STARTED):
            await self.world.sessions.move(row.id, event, NOW)
        self.kernels[row.id] = view.kernels[0].id
        return row.id

    async def add_checker(
        self,
        settings: CheckerSettings = SETTINGS,
        kind: CheckerType = CheckerType.UTILIZATION,
        scope: tuple[str, str] = ("domain", "d"),
        **binding: Any,
    ) -> str:
        name = f"{kind}-{scope[0]}"
        await self.world.write(
            idle_checks.idle_checkers.insert().values(
                id=name, created_at=NOW, name=name, type=kind, settings=settings.as_json()
            ),
            idle_checks.idle_checker_bindings.insert().values(
                id=name,
                created_at=NOW,
                checker_id=name,
                scope=scope[0],
                scope_id=scope[1],
                changed_by_role="superadmin",
                **binding,
            ),
        )
        return name

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.monotonic += seconds

    async def use(self, seconds: int, **utilization: float) -> None:
        """Let time pass, with a step of the manager every 15 s; store samples of the sessions.

        ``utilization`` maps names of sessions to their utilization in percent; others have no
        samples.
        """
        rows = {row.name: row.id for row in await self.world.sessions.in_status(*Status)}
        for _ in range(seconds // 15):
            start = FINE.start_of(self.now)
            found = [
                Sample(
                    self.kernels[rows[name]],
                    start,
                    {"cpu_cores": percent / 100},
                    {"g0": {"utilization_percent": percent}},
                )
                for name, percent in utilization.items()
            ]
            await self.samples.add(found, FINE)
            self.advance(15)
            await self.judging.step()

    async def status(self, session_id: str) -> Status:
        return (await self.world.sessions.find(session_id)).status

    async def checks(self, session_id: str) -> list[Any]:
        view = await self.world.sessions.view(session_id)
        return [check.stored for check in view.idle_checks]

    async def decisions(self) -> list[tuple[str, bool]]:
        page = await self.checkers.decisions(ListQuery())
        return [(decision.session, decision.is_dry_run) for decision in page.items]


@pytest.fixture
async def office(database_url: str) -> AsyncIterator[Office]:
    world = await make_world(database_url)
    yield Office(world)
    await world.close()


async def test_idle_session_is_warned_and_stopped(office: Office) -> None:
    idle, busy = await office.add_session("idle"), await office.add_session("busy")
    await office.add_checker()
    await office.use(240, idle=1, busy=60)
    (check,) = await office.checks(idle)
    assert check.status == "idle"
    assert check.ends_at is not None
    assert [each.status for each in await office.checks(busy)] == ["active"]
    assert await office.status(idle) is Status.RUNNING
    await office.use(180, idle=1, busy=60)
    assert await office.status(idle) is Status.TERMINATING
    assert await office.status(busy) is Status.RUNNING
    row = await office.world.sessions.find(idle)
    assert row.status_info == (
        "idle-utilization: cpu_util 1% (threshold 5%), cuda_util 1% (threshold 5%) in 90% of the "
        "samples of 5min; idle checker utilization-domain"
    )
    assert row.status_coded is not None
    assert row.status_coded["code"] == "idle-utilization"
    assert await office.decisions() == [("idle", False)]
    # The results of a session that no longer runs are deleted.
    async with office.world.database.read() as tx:
        stored = await tx.scalars(sa.select(idle_checks.session_idle_checks.c.session_id))
        assert set(stored) == {busy}


async def test_session_is_not_stopped_because_of_a_gap(office: Office) -> None:
    session = await office.add_session("lab")
    await office.add_checker()
    await office.use(225, lab=1)
    await office.use(120)
    assert [check.status for check in await office.checks(session)] == ["not-checked"]
    await office.use(150, lab=1)
    assert await office.status(session) is Status.RUNNING


async def test_restarted_manager_warns_again_before_it_stops(office: Office) -> None:
    session = await office.add_session("lab")
    await office.add_checker()
    await office.use(285, lab=1)
    await office.samples.add(
        [
            Sample(
                office.kernels[session],
                FINE.start_of(office.now) + timedelta(seconds=15 * n),
                {"cpu_cores": 0.01},
                {"g0": {"utilization_percent": 1}},
            )
            for n in range(40)
        ],
        FINE,
    )
    office.advance(600)
    office.judging = office.new_judging()
    await office.judging.step()
    (check,) = await office.checks(session)
    assert check.ends_at == office.now + timedelta(seconds=120)
    await office.use(105, lab=1)
    assert await office.status(session) is Status.RUNNING
    await office.use(45, lab=1)
    assert await office.status(session) is Status.TERMINATING


@pytest.mark.parametrize("jump", [timedelta(hours=3), timedelta(hours=-3)])
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_change_of_the_clock_stops_no_session(
    office: Office, jump: timedelta, is_restarted: bool
) -> None:
    # Three hours before the change, the session was idle; then it was used.
    session = await office.add_session("lab")
    await office.add_checker()
    office.now += timedelta(hours=3)
    old = [
        Sample(
            office.kernels[session],
            office.now - timedelta(hours=3, seconds=15 * n),
            {"cpu_cores": 0.01},
            {"g0": {"utilization_percent": 1}},
        )
        for n in range(60)
    ]
    await office.samples.add(old, FINE)
    await office.use(240, lab=60)
    office.now += jump
    if is_restarted:
        office.judging = office.new_judging()
    await office.use(240, lab=1)
    assert await office.status(session) is Status.RUNNING


async def test_standby_stops_nothing_and_warns_after_the_takeover(office: Office) -> None:
    session = await office.add_session("lab")
    await office.add_checker()
    lease = office.new_lease()
    standby = office.new_judging(lease)
    await office.use(285, lab=1)
    await standby.step()
    office.advance(60)
    await standby.step()
    assert await office.status(session) is Status.RUNNING
    await office.lease.stop()
    office.judging = standby
    await office.use(120, lab=1)
    assert await office.status(session) is Status.RUNNING
    await office.use(300, lab=1)
    assert await office.status(session) is Status.TERMINATING


async def test_dry_run_records_each_session_once_and_stops_nothing(office: Office) -> None:
    session = await office.add_session("lab")
    await office.add_checker(is_dry_run=True)
    await office.use(480, lab=1)
    office.judging = office.new_judging()
    await office.use(240, lab=1)
    assert await office.status(session) is Status.RUNNING
    assert await office.decisions() == [("lab", True)]
    (check,) = await office.checks(session)
    assert (check.is_dry_run, check.is_due) == (True, True)


async def test_binding_that_is_not_a_dry_run_prevails(office: Office) -> None:
    session = await office.add_session("lab")
    name = await office.add_checker(is_dry_run=True)
    await office.world.write(
        idle_checks.idle_checker_bindings.insert().values(
            id="b",
            created_at=NOW,
            checker_id=name,
            scope="user",
            scope_id="u1",
            changed_by_role="superadmin",
        )
    )
    await office.use(480, lab=1)
    assert await office.status(session) is Status.TERMINATING


@pytest.mark.parametrize(
    ("scope", "is_enabled"), [(("domain", "other"), True), (("project", "p1"), False)]
)
async def test_checker_of_another_scope_or_disabled_binding_does_not_apply(
    office: Office, scope: tuple[str, str], is_enabled: bool
) -> None:
    session = await office.add_session("lab")
    await office.add_checker(scope=scope, is_enabled=is_enabled)
    await office.use(480, lab=1)
    assert await office.status(session) is Status.RUNNING
    assert await office.checks(session) == []


async def test_keep_alives_are_limited(office: Office) -> None:
    session = await office.add_session("lab")
    await office.add_checker(CheckerSettings(300, thresholds={"cpu_util": 5}, max_keep_alives=2))
    with pytest.raises(Conflict, match="no idle checker applies"):
        await office.store.keep_alive(session, office.now)
    for _ in range(2):
        await office.use(285, lab=1)
        await office.store.keep_alive(session, office.now)
        assert [check.ends_at for check in await office.checks(session)] == [None]
    with pytest.raises(Conflict, match="allows another keep-alive"):
        await office.store.keep_alive(session, office.now)
    await office.use(285, lab=1)
    assert await office.status(session) is Status.RUNNING
    await office.use(180, lab=1)
    assert await office.status(session) is Status.TERMINATING


async def test_session_can_be_excluded_only_if_the_checker_allows_it(office: Office) -> None:
    session = await office.add_session("lab")
    open_settings = CheckerSettings(300, thresholds={"cpu_util": 5}, allows_exclusion=True)
    await office.add_checker(open_settings)
    await office.use(15, lab=1)
    await office.store.exclude(session, True)
    await office.use(480, lab=1)
    assert [check.status for check in await office.checks(session)] == ["excluded"]
    assert await office.status(session) is Status.RUNNING
    await office.store.exclude(session, False)
    await office.add_checker(scope=("project", "p1"))
    await office.use(180, lab=1)
    assert await office.status(session) is Status.TERMINATING


async def test_session_that_was_excluded_for_a_moment_is_warned_again(office: Office) -> None:
    session = await office.add_session("lab")
    settings = CheckerSettings(300, thresholds={"cpu_util": 5}, allows_exclusion=True)
    await office.add_checker(settings)
    await office.use(285, lab=1)
    (shown,) = await office.checks(session)
    assert shown.ends_at is not None
    for is_excluded in (True, False):
        await office.store.exclude(session, is_excluded)
    while office.now <= shown.ends_at:
        await office.use(15, lab=1)
    assert await office.status(session) is Status.RUNNING
    (again,) = await office.checks(session)
    assert again.ends_at is not None
    assert again.ends_at > office.now
    await office.use(120, lab=1)
    assert await office.status(session) is Status.TERMINATING


async def test_session_that_is_kept_alive_at_the_last_moment_has_no_decision(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await office.add_session("lab")
    await office.add_checker()
    write = IdleCheckStore.write

    async def write_and_keep_alive(self: IdleCheckStore, *results: Any) -> None:
        await write(self, *results)
        if results[2]:
            await self.keep_alive(session, office.now)

    monkeypatch.setattr(IdleCheckStore, "write", write_and_keep_alive)
    await office.use(435, lab=1)
    assert await office.status(session) is Status.RUNNING
    assert await office.decisions() == []
    monkeypatch.undo()
    await office.use(600, lab=1)
    assert await office.status(session) is Status.TERMINATING
    assert await office.decisions() == [("lab", False)]


async def test_lifetime_checker_names_the_strictest_rule(office: Office) -> None:
    session = await office.add_session("lab")
    await office.add_checker(CheckerSettings(600), CheckerType.LIFETIME)
    await office.add_checker(CheckerSettings(900), CheckerType.LIFETIME, ("project", "p1"))
    await office.use(735)
    assert await office.status(session) is Status.TERMINATING
    row = await office.world.sessions.find(session)
    assert row.status_info.endswith("the maximum of idle checker session-lifetime-domain")


@pytest.mark.parametrize(("check", "is_stopped"), [("resources", True), ("policy", False)])
async def test_window_shrinks_only_while_a_session_waits_for_the_same_resources(
    office: Office, check: str, is_stopped: bool
) -> None:
    session = await office.add_session("lab")
    settings = CheckerSettings(
        1800, thresholds={"cpu_util": 5}, min_seconds_under_pressure=300, only_under_pressure=True
    )
    await office.add_checker(settings)
    await office.use(360, lab=1)
    assert [each.ends_at for each in await office.checks(session)] == [None]
    waiting = office.world.new_session("waits", {"cpu": "1", "mem": "1g", "cuda.device": "2"})
    await office.world.sessions.enqueue(waiting, NOW)
    reasons = [{"check": check, "passed": False}]
    await office.world.write(
        sa.update(tables.sessions).where(tables.sessions.c.name == "waits").values(reasons=reasons)
    )
    # One waiting session halves the window.
    await office.use(600, lab=1)
    assert (await office.status(session) is Status.TERMINATING) == is_stopped


async def test_long_window_uses_the_coarse_samples(office: Office) -> None:
    session = await office.add_session("lab")
    await office.add_checker(CheckerSettings(7200, thresholds={"cpu_util": 5}))
    for n in range(60):
        at = COARSE.start_of(office.now) + timedelta(seconds=300 * n)
        sample = Sample(office.kernels[session], at, {"cpu_cores": 0.01}, {})
        await office.samples.add([sample], COARSE)
    office.advance(5000)
    await office.judging.step()
    (check,) = await office.checks(session)
    assert check.status == "idle"
    office.advance(4000)
    await office.judging.step()
    office.advance(130)
    await office.judging.step()
    assert await office.status(session) is Status.TERMINATING


async def test_bindings_that_are_no_longer_valid_are_deleted(office: Office) -> None:
    await office.add_checker(scope=("user", "u1"), domain="d")
    other = {"id": "e", "name": "e", "type": "session-lifetime", "settings": {"max_seconds": 60}}
    await office.world.write(
        sa.insert(accounts.domains).values(
            name="new", created_at=NOW, total_resource_slots={}, allowed_vfolder_hosts={}
        ),
        sa.update(accounts.users).where(accounts.users.c.id == "u1").values(domain="new"),
        idle_checks.idle_checkers.insert().values(created_at=NOW, **other),
        *(
            idle_checks.idle_checker_bindings.insert().values(
                id=f"{scope}-{key}",
                created_at=NOW,
                checker_id="e",
                scope=scope,
                scope_id=key,
                domain=domain,
                changed_by_role="admin",
            )
            for scope, key, domain in (("user", "u1", "d"), ("project", "gone", "d"))
        ),
    )
    await office.judging.step()
    page = await office.checkers.bindings(ListQuery())
    assert [(binding.scope_id, binding.domain) for binding in page.items] == [("u1", "new")]


AFTER_WINDOW = NOW + timedelta(seconds=600)


async def step(url: str) -> None:
    office = Office(World(url))
    office.now = AFTER_WINDOW
    await until_killed(office.judging.step)


def test_killed_manager_stops_and_records_each_session_once(database_url: str) -> None:
    async def prepare() -> None:
        world = await make_world(database_url)
        office = Office(world)
        kernels = [office.kernels[await office.add_session(name)] for name in ("one", "two")]
        settings = CheckerSettings(300, thresholds={"cpu_util": 5}, warnings_seconds=())
        await office.add_checker(settings)
        samples = [
            Sample(key, NOW + timedelta(seconds=15 * n), {"cpu_cores": 0.01}, {})
            for key in kernels
            for n in range(40)
        ]
        await office.samples.add(samples, FINE)
        await world.close()

    async def check(*left: Status) -> None:
        world = World(database_url)
        names = [name for name, _ in await Office(world).decisions()]
        assert len(names) == len(set(names))
        for row in await world.sessions.in_status(*Status):
            events = [change.event for change in await world.sessions.history(row.id)]
            assert events.count(Event.STOP_REQUESTED) == (row.status is Status.TERMINATING)
            assert row.status in (Status.TERMINATING, *left)
            assert row.status is Status.RUNNING or row.name in names
        await world.close()

    asyncio.run(prepare())
    count = kill_everywhere(step, database_url, check=lambda: asyncio.run(check(Status.RUNNING)))
    assert count > 3
    asyncio.run(check())
