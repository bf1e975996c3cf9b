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
from bai_services.db.tables.accounts import audit_log
from bai_services.manager.audit import Audit
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
# The devices of a session's kernel, as its agent reports them.
INJECTION = {"devices": [{"id": "g0", "family": "cuda", "memory_bytes": 1000}]}


class IdleSimulation:
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
        """Return the ``IdleJudging`` of a manager that has just started."""
        database = self.world.database
        return IdleJudging(
            IdleCheckStore(database),
            UsageSampleStore(database),
            PlannedStops(
                Lifecycle(SessionStore(database), Events(), lambda: self.now),
                Audit(database, lambda: self.now),
            ),
            lambda: self.now,
            lease=lease or self.lease,
            metrics=Metrics(),
            monotonic=lambda: self.monotonic,
        )

    async def add_session(self, name: str) -> str:
        """Start a session; return its id."""
        row, _ = await self.world.sessions.enqueue(self.world.new_session(name), NOW)
        await self.start(row.id)
        return row.id

    async def start(self, session_id: str) -> None:
        """Place and start a pending session."""
        await self.world.run_pass()
        view = await self.world.sessions.view(session_id)
        await self.world.sessions.move(session_id, Event.DISPATCHED, self.now)
        await self.world.kernels.set_injection(session_id, view.kernels[0].id, INJECTION, None)
        for event in (Event.PREPARED, Event.STARTED):
            await self.world.sessions.move(session_id, event, self.now)
        self.kernels[session_id] = view.kernels[0].id

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

    async def stored(self, session_id: str) -> Any:
        """Return the only stored result for a session, which need not run."""
        async with self.world.database.read() as tx:
            found = await tx.execute(
                sa.select(idle_checks.session_idle_checks).filter_by(session_id=session_id)
            )
            return found.one()

    async def decisions(self) -> list[tuple[str, bool]]:
        page = await self.checkers.decisions(ListQuery())
        return [(decision.session, decision.is_dry_run) for decision in page.items]


@pytest.fixture
async def simulation(database_url: str) -> AsyncIterator[IdleSimulation]:
    world = await make_world(database_url)
    yield IdleSimulation(world)
    await world.close()


async def test_idle_session_is_warned_and_stopped(simulation: IdleSimulation) -> None:
    idle, busy = await simulation.add_session("idle"), await simulation.add_session("busy")
    await simulation.add_checker()
    await simulation.use(240, idle=1, busy=60)
    (check,) = await simulation.checks(idle)
    assert check.status == "idle"
    assert check.ends_at is not None
    assert [each.status for each in await simulation.checks(busy)] == ["active"]
    assert await simulation.status(idle) is Status.RUNNING
    await simulation.use(180, idle=1, busy=60)
    assert await simulation.status(idle) is Status.TERMINATING
    assert await simulation.status(busy) is Status.RUNNING
    row = await simulation.world.sessions.find(idle)
    assert row.status_info == (
        "low utilization: CPU utilization 1% (threshold 5%), GPU utilization 1% (threshold 5%) in "
        "90% of the samples of 5min; idle checker utilization-domain"
    )
    assert row.status_coded is not None
    assert row.status_coded["code"] == "idle-utilization"
    assert await simulation.decisions() == [("idle", False)]
    async with simulation.world.database.read() as tx:
        (entry,) = await tx.execute(sa.select(audit_log).filter_by(action="session.stop"))
    assert (entry.actor, entry.entity_id, entry.owner_id) == ("manager", idle, row.owner_id)
    assert entry.details == {"name": "idle", "reason": row.status_info}
    # The results of an ended session are deleted.
    await simulation.world.sessions.move(idle, Event.EXITED, simulation.now)
    await simulation.judging.step()
    async with simulation.world.database.read() as tx:
        stored = await tx.scalars(sa.select(idle_checks.session_idle_checks.c.session_id))
        assert set(stored) == {busy}


@pytest.mark.parametrize("offset", [0, 4, 11])
async def test_last_warning_is_shown_for_its_full_time(
    simulation: IdleSimulation, offset: float
) -> None:
    session = await simulation.add_session("lab")
    simulation.advance(offset)
    settings = CheckerSettings(300, thresholds={"cpu_util": 5}, warnings_seconds=(60,))
    await simulation.add_checker(settings)
    shown: list[float] = []
    while await simulation.status(session) is Status.RUNNING:
        await simulation.use(15, lab=1)
        for check in await simulation.checks(session):
            left = check.ends_at and (check.ends_at - simulation.now).total_seconds()
            shown += [left] if left is not None and left <= 60 else []
    # The session is stopped by the first step at or after the announced end.
    assert shown == [60, 45, 30, 15]


@pytest.mark.parametrize("kind", [CheckerType.NETWORK, CheckerType.LIFETIME])
async def test_session_is_stopped_at_its_announced_end(
    simulation: IdleSimulation, kind: CheckerType
) -> None:
    session = await simulation.add_session("lab")
    simulation.advance(4)
    await simulation.add_checker(CheckerSettings(300, warnings_seconds=(180, 60)), kind)
    announced: set[float] = set()
    warned_at: set[float] = set()
    while await simulation.status(session) is Status.RUNNING:
        await simulation.world.write(
            sa.update(tables.sessions).values(use_heard_at=simulation.now, used_at=NOW)
        )
        await simulation.judging.step()
        for check in await simulation.checks(session):
            if check.ends_at is not None:
                announced.add((check.ends_at - NOW).total_seconds())
            if check.status == "idle":
                warned_at.add((simulation.now - NOW).total_seconds())
        stopped_at = simulation.now
        simulation.advance(simulation.judging.next_step_seconds)
    # The countdown begins on time, the end does not move, and the stop follows within a second.
    assert 120 <= min(warned_at) < 121
    assert announced == {300}
    assert 300 <= (stopped_at - NOW).total_seconds() < 301


async def test_session_is_not_stopped_because_of_a_gap(simulation: IdleSimulation) -> None:
    session = await simulation.add_session("lab")
    await simulation.add_checker()
    await simulation.use(225, lab=1)
    await simulation.use(120)
    assert [check.status for check in await simulation.checks(session)] == ["not-checked"]
    await simulation.use(150, lab=1)
    assert await simulation.status(session) is Status.RUNNING


async def test_restarted_manager_warns_again_before_it_stops(simulation: IdleSimulation) -> None:
    session = await simulation.add_session("lab")
    await simulation.add_checker()
    await simulation.use(285, lab=1)
    await simulation.samples.add(
        [
            Sample(
                simulation.kernels[session],
                FINE.start_of(simulation.now) + timedelta(seconds=15 * n),
                {"cpu_cores": 0.01},
                {"g0": {"utilization_percent": 1}},
            )
            for n in range(40)
        ],
        FINE,
    )
    simulation.advance(600)
    simulation.judging = simulation.new_judging()
    await simulation.judging.step()
    (check,) = await simulation.checks(session)
    assert check.ends_at == simulation.now + timedelta(seconds=120)
    await simulation.use(105, lab=1)
    assert await simulation.status(session) is Status.RUNNING
    await simulation.use(45, lab=1)
    assert await simulation.status(session) is Status.TERMINATING


async def test_rule_that_is_bound_to_an_idle_session_warns_first(
    simulation: IdleSimulation,
) -> None:
    session = await simulation.add_session("lab")
    await simulation.use(900, lab=1)
    settings = CheckerSettings(300, thresholds={"cpu_util": 5}, warnings_seconds=(120, 60))
    await simulation.add_checker(settings, effective_at=simulation.now)
    bound_at = simulation.now
    await simulation.use(15, lab=1)
    (check,) = await simulation.checks(session)
    assert check.ends_at is not None
    assert check.ends_at - simulation.now >= timedelta(seconds=120)
    while await simulation.status(session) is Status.RUNNING:
        await simulation.use(15, lab=1)
    assert simulation.now - bound_at >= timedelta(seconds=135)


@pytest.mark.parametrize("jump", [timedelta(hours=3), timedelta(hours=-3)])
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_change_of_the_clock_stops_no_session(
    simulation: IdleSimulation, jump: timedelta, is_restarted: bool
) -> None:
    # Three hours before the change, the session was idle; then it was used.
    session = await simulation.add_session("lab")
    await simulation.add_checker()
    simulation.now += timedelta(hours=3)
    old = [
        Sample(
            simulation.kernels[session],
            simulation.now - timedelta(hours=3, seconds=15 * n),
            {"cpu_cores": 0.01},
            {"g0": {"utilization_percent": 1}},
        )
        for n in range(60)
    ]
    await simulation.samples.add(old, FINE)
    await simulation.use(240, lab=60)
    simulation.now += jump
    if is_restarted:
        simulation.judging = simulation.new_judging()
    await simulation.use(240, lab=1)
    assert await simulation.status(session) is Status.RUNNING


async def test_standby_stops_nothing_and_warns_after_the_takeover(
    simulation: IdleSimulation,
) -> None:
    session = await simulation.add_session("lab")
    await simulation.add_checker()
    lease = simulation.new_lease()
    standby = simulation.new_judging(lease)
    await simulation.use(285, lab=1)
    await standby.step()
    simulation.advance(60)
    await standby.step()
    assert await simulation.status(session) is Status.RUNNING
    await simulation.lease.stop()
    simulation.judging = standby
    await simulation.use(120, lab=1)
    assert await simulation.status(session) is Status.RUNNING
    await simulation.use(300, lab=1)
    assert await simulation.status(session) is Status.TERMINATING


async def test_dry_run_records_each_session_once_and_stops_nothing(
    simulation: IdleSimulation,
) -> None:
    session = await simulation.add_session("lab")
    await simulation.add_checker(is_dry_run=True)
    await simulation.use(480, lab=1)
    simulation.judging = simulation.new_judging()
    await simulation.use(240, lab=1)
    assert await simulation.status(session) is Status.RUNNING
    assert await simulation.decisions() == [("lab", True)]
    (check,) = await simulation.checks(session)
    assert (check.is_dry_run, check.is_due) == (True, True)


async def test_binding_that_is_not_a_dry_run_prevails(simulation: IdleSimulation) -> None:
    session = await simulation.add_session("lab")
    name = await simulation.add_checker(is_dry_run=True)
    await simulation.world.write(
        idle_checks.idle_checker_bindings.insert().values(
            id="b",
            created_at=NOW,
            checker_id=name,
            scope="user",
            scope_id="u1",
            changed_by_role="superadmin",
        )
    )
    await simulation.use(480, lab=1)
    assert await simulation.status(session) is Status.TERMINATING


@pytest.mark.parametrize(
    "scope",
    [
        ("domain", "d"),
        ("project", "p1"),
        ("resource-group", "main"),
        ("user", "u1"),
        ("keypair-policy", "default"),
    ],
)
async def test_checker_applies_to_the_sessions_of_its_scope(
    simulation: IdleSimulation, scope: tuple[str, str]
) -> None:
    session = await simulation.add_session("lab")
    await simulation.add_checker(scope=scope)
    await simulation.use(480, lab=1)
    assert await simulation.status(session) is Status.TERMINATING


@pytest.mark.parametrize(
    ("scope", "is_enabled"),
    [
        (("domain", "other"), True),
        (("project", "p1"), False),
        (("resource-group", "other"), True),
        (("user", "u2"), True),
        (("keypair-policy", "other"), True),
    ],
)
async def test_checker_of_another_scope_or_disabled_binding_does_not_apply(
    simulation: IdleSimulation, scope: tuple[str, str], is_enabled: bool
) -> None:
    session = await simulation.add_session("lab")
    await simulation.add_checker(scope=scope, is_enabled=is_enabled)
    await simulation.use(480, lab=1)
    assert await simulation.status(session) is Status.RUNNING
    assert await simulation.checks(session) == []


async def test_keep_alives_are_limited(simulation: IdleSimulation) -> None:
    session = await simulation.add_session("lab")
    await simulation.add_checker(
        CheckerSettings(300, thresholds={"cpu_util": 5}, max_keep_alives=2)
    )
    with pytest.raises(Conflict, match="no idle checker applies"):
        await simulation.store.keep_alive(session, simulation.now)
    for _ in range(2):
        await simulation.use(285, lab=1)
        await simulation.store.keep_alive(session, simulation.now)
        assert [check.ends_at for check in await simulation.checks(session)] == [None]
    with pytest.raises(Conflict, match="allows another keep-alive"):
        await simulation.store.keep_alive(session, simulation.now)
    await simulation.use(285, lab=1)
    assert await simulation.status(session) is Status.RUNNING
    await simulation.use(180, lab=1)
    assert await simulation.status(session) is Status.TERMINATING


async def test_dry_run_uses_up_no_keep_alive(simulation: IdleSimulation) -> None:
    session = await simulation.add_session("lab")
    settings = CheckerSettings(300, thresholds={"cpu_util": 5}, max_keep_alives=1)
    await simulation.add_checker(settings)
    await simulation.add_checker(settings, scope=("project", "p1"), is_dry_run=True)
    await simulation.use(285, lab=1)
    assert await simulation.store.keep_alive(session, simulation.now) == 1
    checks = await simulation.checks(session)
    assert {check.is_dry_run: check.keep_alives for check in checks} == {False: 1, True: 0}
    assert {check.ends_at for check in checks} == {None}
    with pytest.raises(Conflict, match="allows another keep-alive"):
        await simulation.store.keep_alive(session, simulation.now)


async def test_session_can_be_excluded_only_if_the_checker_allows_it(
    simulation: IdleSimulation,
) -> None:
    session = await simulation.add_session("lab")
    open_settings = CheckerSettings(300, thresholds={"cpu_util": 5}, allows_exclusion=True)
    await simulation.add_checker(open_settings)
    await simulation.use(15, lab=1)
    await simulation.store.exclude(session, True)
    await simulation.use(480, lab=1)
    assert [check.status for check in await simulation.checks(session)] == ["excluded"]
    assert await simulation.status(session) is Status.RUNNING
    await simulation.store.exclude(session, False)
    await simulation.add_checker(scope=("project", "p1"))
    await simulation.use(180, lab=1)
    assert await simulation.status(session) is Status.TERMINATING


async def test_preempted_session_stays_excluded_and_its_keep_alives_stay_used(
    simulation: IdleSimulation,
) -> None:
    session = await simulation.add_session("lab")
    open_settings = CheckerSettings(
        300, thresholds={"cpu_util": 5}, allows_exclusion=True, max_keep_alives=1
    )
    await simulation.add_checker(open_settings)
    await simulation.use(285, lab=1)
    await simulation.store.keep_alive(session, simulation.now)
    await simulation.use(285, lab=1)
    await simulation.world.sessions.move(session, Event.PREEMPTED, simulation.now)
    await simulation.judging.step()
    await simulation.world.sessions.move(session, Event.REQUEUED, simulation.now)
    await simulation.judging.step()
    check = await simulation.stored(session)
    assert (check.status, check.ends_at, check.keep_alives) == ("not-checked", None, 1)
    # Results that are already reset are not written again at each step.
    assert await simulation.store.stored() == []

    await simulation.start(session)
    await simulation.use(285, lab=1)
    (check,) = await simulation.checks(session)
    assert (check.status, check.keep_alives) == ("idle", 1)
    with pytest.raises(Conflict, match="allows another keep-alive"):
        await simulation.store.keep_alive(session, simulation.now)
    await simulation.store.exclude(session, True)
    for event in (Event.PREEMPTED, Event.REQUEUED):
        await simulation.world.sessions.move(session, event, simulation.now)
        await simulation.judging.step()
    await simulation.start(session)
    await simulation.use(600, lab=1)
    assert await simulation.status(session) is Status.RUNNING
    assert [each.is_excluded for each in await simulation.checks(session)] == [True]


async def test_session_can_be_excluded_before_its_first_check(simulation: IdleSimulation) -> None:
    session = await simulation.add_session("lab")
    with pytest.raises(Conflict, match="allows its exclusion"):
        await simulation.store.exclude(session, True)
    await simulation.add_checker(
        CheckerSettings(300, thresholds={"cpu_util": 5}, allows_exclusion=True)
    )
    assert await simulation.store.exclude(session, True) == 1
    await simulation.use(600, lab=1)
    assert await simulation.status(session) is Status.RUNNING
    assert [each.is_excluded for each in await simulation.checks(session)] == [True]


async def test_session_that_was_excluded_for_a_moment_is_warned_again(
    simulation: IdleSimulation,
) -> None:
    session = await simulation.add_session("lab")
    settings = CheckerSettings(300, thresholds={"cpu_util": 5}, allows_exclusion=True)
    await simulation.add_checker(settings)
    await simulation.use(285, lab=1)
    (shown,) = await simulation.checks(session)
    assert shown.ends_at is not None
    for is_excluded in (True, False):
        await simulation.store.exclude(session, is_excluded)
    while simulation.now <= shown.ends_at:
        await simulation.use(15, lab=1)
    assert await simulation.status(session) is Status.RUNNING
    (again,) = await simulation.checks(session)
    assert again.ends_at is not None
    assert again.ends_at > simulation.now
    await simulation.use(120, lab=1)
    assert await simulation.status(session) is Status.TERMINATING


async def test_session_that_is_kept_alive_at_the_last_moment_has_no_decision(
    simulation: IdleSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await simulation.add_session("lab")
    await simulation.add_checker()
    write = IdleCheckStore.write

    async def write_and_keep_alive(self: IdleCheckStore, *results: Any) -> None:
        await write(self, *results)
        if results[2]:
            await self.keep_alive(session, simulation.now)

    monkeypatch.setattr(IdleCheckStore, "write", write_and_keep_alive)
    await simulation.use(435, lab=1)
    assert await simulation.status(session) is Status.RUNNING
    assert await simulation.decisions() == []
    monkeypatch.undo()
    await simulation.use(600, lab=1)
    assert await simulation.status(session) is Status.TERMINATING
    assert await simulation.decisions() == [("lab", False)]


async def test_lifetime_checker_names_the_strictest_rule(simulation: IdleSimulation) -> None:
    session = await simulation.add_session("lab")
    await simulation.add_checker(CheckerSettings(600), CheckerType.LIFETIME)
    await simulation.add_checker(CheckerSettings(900), CheckerType.LIFETIME, ("project", "p1"))
    await simulation.use(735)
    assert await simulation.status(session) is Status.TERMINATING
    row = await simulation.world.sessions.find(session)
    assert row.status_info.endswith("the limit of idle checker session-lifetime-domain")


@pytest.mark.parametrize(("check", "is_stopped"), [("resources", True), ("policy", False)])
async def test_window_shrinks_only_while_a_session_waits_for_the_same_resources(
    simulation: IdleSimulation, check: str, is_stopped: bool
) -> None:
    session = await simulation.add_session("lab")
    settings = CheckerSettings(
        1800, thresholds={"cpu_util": 5}, min_seconds_under_pressure=300, only_under_pressure=True
    )
    await simulation.add_checker(settings)
    await simulation.use(360, lab=1)
    assert [each.ends_at for each in await simulation.checks(session)] == [None]
    waiting = simulation.world.new_session("waits", {"cpu": "1", "mem": "1g", "cuda.device": "2"})
    await simulation.world.sessions.enqueue(waiting, NOW)
    reasons = [{"check": check, "passed": False}]
    await simulation.world.write(
        sa.update(tables.sessions).where(tables.sessions.c.name == "waits").values(reasons=reasons)
    )
    # With one waiting session, the window is half as long, so an idle session is stopped after 600
    # s.
    await simulation.use(600, lab=1)
    assert (await simulation.status(session) is Status.TERMINATING) == is_stopped


async def test_long_window_uses_the_coarse_samples(simulation: IdleSimulation) -> None:
    session = await simulation.add_session("lab")
    await simulation.add_checker(CheckerSettings(7200, thresholds={"cpu_util": 5}))
    for n in range(60):
        at = COARSE.start_of(simulation.now) + timedelta(seconds=300 * n)
        sample = Sample(simulation.kernels[session], at, {"cpu_cores": 0.01}, {})
        await simulation.samples.add([sample], COARSE)
    simulation.advance(5000)
    await simulation.judging.step()
    (check,) = await simulation.checks(session)
    assert check.status == "idle"
    simulation.advance(4000)
    await simulation.judging.step()
    simulation.advance(130)
    await simulation.judging.step()
    assert await simulation.status(session) is Status.TERMINATING


async def test_bindings_that_are_no_longer_valid_are_deleted(simulation: IdleSimulation) -> None:
    await simulation.add_checker(scope=("user", "u1"), domain="d")
    other = {"id": "e", "name": "e", "type": "session-lifetime", "settings": {"max_seconds": 60}}
    await simulation.world.write(
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
    await simulation.judging.step()
    page = await simulation.checkers.bindings(ListQuery())
    assert [(binding.scope_id, binding.domain) for binding in page.items] == [("u1", "new")]


AFTER_WINDOW = NOW + timedelta(seconds=600)


async def step(url: str) -> None:
    simulation = IdleSimulation(World(url))
    simulation.now = AFTER_WINDOW
    await until_killed(simulation.judging.step)


def test_killed_manager_stops_and_records_each_session_once(database_url: str) -> None:
    async def prepare() -> None:
        world = await make_world(database_url)
        simulation = IdleSimulation(world)
        kernels = [
            simulation.kernels[await simulation.add_session(name)] for name in ("one", "two")
        ]
        settings = CheckerSettings(300, thresholds={"cpu_util": 5}, warnings_seconds=())
        await simulation.add_checker(settings)
        samples = [
            Sample(key, NOW + timedelta(seconds=15 * n), {"cpu_cores": 0.01}, {})
            for key in kernels
            for n in range(40)
        ]
        await simulation.samples.add(samples, FINE)
        await world.close()

    async def check(*left: Status) -> None:
        world = World(database_url)
        names = [name for name, _ in await IdleSimulation(world).decisions()]
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
