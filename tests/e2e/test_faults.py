"""Kill each component at random points of many starts and stops; nothing leaks or is duplicated.

The usage records and the usage report equal the usage that is computed from the history.

``BAI_FAULT_CYCLES`` is the number of sessions that are started and stopped (default 30; `make soak`
runs 200). ``BAI_FAULT_SEED`` is the seed of all random choices. Each run prints its seed.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import sqlalchemy as sa

from bai_services.core.cluster.devices import thousandths
from bai_services.core.resources import SHARE_UNIT
from bai_services.core.sessions.lifecycle import ENDED
from bai_services.core.usage.model import SESSIONS, WAITING, unit_of
from bai_services.db.database import Database
from bai_services.db.scheduling.allocations import AllocationStore
from bai_services.db.tables.sessions import allocations
from tests.hub import ROOT, Component, RunningHub, running_session, session_in
from tests.testbed.usage_history import integrated_usage, stored_usage
from tests.testbed.wait import wait_until

CYCLES = int(os.environ.get("BAI_FAULT_CYCLES", "30"))
SEED = int(os.environ.get("BAI_FAULT_SEED", "0")) or random.randrange(2**32)
WORKERS = 6
# Kills are rare, because after each kill the test waits until all components are up again.
CYCLES_PER_KILL = 15
TIMEOUT_SECONDS = 240
COMPONENTS: tuple[Component, ...] = ("hub", "manager", "agent", "proxy")
USERS = ("user", "user2", "acme-user")
SLOTS = (
    {},
    {"cuda.shares": "0.25"},
    {"cuda.shares": "0.5"},
    {"cuda.shares": "1"},
    {"cuda.device": "1"},
)
# Number of batch sessions, and the components that are killed while they run.
BATCH_SESSIONS = 24
KILLED: tuple[Component, ...] = ("agent", "manager", "agent", "manager", "agent")
# With this lock, only one client at a time polls whether the demo is up.
PROBE_LOCK = threading.Lock()
# Statuses in which a session is stopped, chosen at random; None: immediately after its creation.
# RUNNING is repeated, so that it is chosen more often.
STOP_STATUSES = (None, "SCHEDULED", "PREPARING", "PREPARED", "RUNNING", "RUNNING", "RUNNING")

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

Session = dict[str, Any]


class RetryingClient:
    """An API client that retries its requests while a component is down."""

    def __init__(self, hub: RunningHub, name: str) -> None:
        self._hub = hub
        self._http = hub.rest(name)
        # Set if any client fails. Then the other clients stop waiting, and the failure is reported.
        self.is_aborted = threading.Event()

    def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        def response_or_none() -> httpx.Response | None:
            if self.is_aborted.is_set():
                raise RuntimeError("another client failed")
            try:
                response = self._http.request(method, path, **options)
            except httpx.TransportError:
                response = None
            # While the manager is down, the proxy responds with an HTML page.
            is_ours = response is not None and "json" in response.headers.get("Content-Type", "")
            if response is not None and is_ours and response.status_code < 500:
                return response
            # A manager that is stopping responds with 5xx first; later it does not respond.
            with PROBE_LOCK:
                wait_until(self._hub.is_up, TIMEOUT_SECONDS, "the demo to be up again")
            return None

        response = wait_until(response_or_none, TIMEOUT_SECONDS, f"a response to {method} {path}")
        assert response is not None
        return response

    def session(self, key: str, **query: str) -> Session:
        answer = self.call("GET", f"/sessions/{key}", params=query)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def end_of(self, key: str) -> Session:
        """Wait until a session has ended and return it."""
        ended: list[Session] = []

        def has_ended() -> bool:
            ended[:] = [self.session(key, wait="TERMINATED", timeout="10")]
            return ended[0]["status"] in ENDED

        wait_until(has_ended, TIMEOUT_SECONDS, f"the end of session {key}")
        return ended[0]


class Steps:
    """Counts the steps of all workers, so that kills happen after given numbers of steps."""

    def __init__(self, points: list[int]) -> None:
        self._points = sorted(points)
        self._count = 0
        self._condition = threading.Condition()
        self.is_over = False

    def step(self) -> None:
        with self._condition:
            self._count += 1
            self._condition.notify_all()

    def advance(self, steps: int, seconds: float) -> None:
        """Return after this number of further steps, after ``seconds``, or at the end."""
        with self._condition:
            last = self._count + steps
            self._condition.wait_for(lambda: self.is_over or self._count >= last, seconds)

    def end(self) -> None:
        with self._condition:
            self.is_over = True
            self._condition.notify_all()

    def kill_points(self) -> Iterator[int]:
        """Yield each number in ``points`` when that many steps are done.

        When all workers are done, yield the remaining numbers.
        """
        for point in self._points:
            with self._condition:
                self._condition.wait_for(lambda p=point: self.is_over or self._count >= p)  # type: ignore[misc]
            yield point


def cycle(client: RetryingClient, steps: Steps, number: int, chance: random.Random) -> str:
    """Start a session, stop it in a random status, and return its final status."""
    steps.step()
    slots = {"cpu": "1", "mem": "256m", **chance.choice(SLOTS)}
    body = {"name": f"fault-{number:04}", "project": "default", "resources": slots}
    made = client.call("POST", "/sessions", json=body)
    assert made.status_code in (200, 201), made.text
    key = made.json()["id"]
    steps.step()
    status = chance.choice(STOP_STATUSES)
    if status is not None:
        client.session(key, wait=status, timeout="20")
    steps.step()
    forced = {"force": "true"} if chance.random() < 0.3 else {}
    answer = client.call("DELETE", f"/sessions/{key}", params=forced)
    assert answer.status_code in (202, 404, 409), answer.text
    steps.step()
    return str(client.end_of(key)["status"])


def kill(hub: RunningHub, component: Component) -> None:
    """Kill a component and wait until all components are up again."""
    old = hub.process_of(component)
    hub.kill(component)
    if component == "hub":
        hub.start()
        return
    wait_until(hub.is_up, TIMEOUT_SECONDS, f"the demo to be up after the kill of its {component}")

    def is_back() -> bool:
        try:
            return hub.process_of(component) != old
        except TimeoutError:
            # The supervisor gives up if a service fails to start. Then the Hub starts the service
            # again, but the Hub checks its services only every 30 s.
            return False

    wait_until(is_back, TIMEOUT_SECONDS, f"a new {component}")


def session_processes(hub: RunningHub) -> dict[str, list[int]]:
    """Return the pids of the running session servers, by session id."""
    pids: dict[str, list[int]] = {}
    for process in hub.left_running():
        try:
            if any("fake_session" in word for word in process.cmdline()[:4]):
                pids.setdefault(process.environ()["BAI_SESSION_ID"], []).append(process.pid)
        except (psutil.Error, KeyError):
            continue
    return pids


@pytest.fixture
def hub(own_hub: Callable[..., RunningHub], tmp_path: Path) -> RunningHub:
    """The demo with fake session servers and an agent that has capacity for many sessions."""
    config = tmp_path / "fake_sessions.py"
    server = ROOT / "tests/testbed/fake_session.py"
    config.write_text(
        f"c.BaiSpawner.cmd = [{sys.executable!r}, '-I', {str(server)!r}]\n"
        f"c.ProcessEngine.readable_paths = [{str(server.parent)!r}]\n"
        "c.ProcessEngine.stop_grace_seconds = 2\n"
    )
    capacity = {"BAI_AGENT_CPU": "16", "BAI_AGENT_MEM": "16g", "BAI_CONFIG": str(config)}
    return own_hub(environment=capacity).start()


async def test_killed_components_leak_nothing_and_allocate_nothing_twice(hub: RunningHub) -> None:
    print(f"BAI_FAULT_SEED={SEED} BAI_FAULT_CYCLES={CYCLES}")
    chance = random.Random(SEED)
    steady = running_session(hub, "domain-admin")
    pids = session_processes(hub)[steady["id"]]
    ends = await asyncio.to_thread(run_cycles_with_kills, hub, chance)
    assert sum(ends.values()) == CYCLES
    print(f"ended as {dict(ends)}")

    # The session that was not stopped still has the same process, and responds through the proxy.
    assert session_processes(hub) == {steady["id"]: pids}
    owner = hub.rest("domain-admin")
    reached = hub.jupyter(owner, steady["url"]).get("api")
    assert (reached.status_code, reached.text) == (200, steady["id"])
    with hub.rest("admin") as admin:
        held = admin.get("/allocations", params={"limit": "500"}).json()["items"]
        assert {item["session_id"] for item in held} == {steady["id"]}
    RetryingClient(hub, "domain-admin").call("DELETE", f"/sessions/{steady['id']}")
    session_in(hub, "domain-admin", steady["id"], "TERMINATED")
    wait_until(lambda: not session_processes(hub), TIMEOUT_SECONDS, "the last process to end")
    # The Hub can notice the end of a server some time after the process has ended.
    wait_until(lambda: not active_servers(hub), TIMEOUT_SECONDS, "the Hub's last server to end")
    reported = reported_seconds(hub)
    hub.stop()
    database = Database(f"sqlite+aiosqlite:///{hub.home}/bai.sqlite")
    try:
        assert await AllocationStore(database).audit() == []
        assert await over_allocations(database) == []
        await check_usage_records(database, reported)
    finally:
        await database.close()


def reported_seconds(hub: RunningHub) -> dict[str, float]:
    """Return the allocated amount times seconds of each slot, from the usage report."""
    with hub.rest("admin") as admin:
        report = admin.get("/usage", params={"every": "hour", "by": "domain"})
        assert report.status_code == 200, report.text
    totals: dict[str, float] = defaultdict(float)
    for row in report.json()["rows"]:
        totals[row["slot"]] += row["allocated_seconds"]
        if row["slot"] == SESSIONS:
            totals[WAITING] += row["waited_seconds"]
    return dict(totals)


async def check_usage_records(database: Database, reported: dict[str, float]) -> None:
    """Check that no usage record is missing or duplicated after the kills, and no sum differs."""
    expected = await integrated_usage(database, datetime.now(UTC))
    assert len({key for key, slot in expected if slot == SESSIONS}) > 1
    assert await stored_usage(database) == expected
    totals: dict[str, float] = defaultdict(float)
    for (_, slot), amount in expected.items():
        totals[slot] += amount / (1 if slot == WAITING else unit_of(slot))
    assert reported == pytest.approx(totals)


async def over_allocations(database: Database) -> list[str]:
    """Return a description of each time at which a device was over-allocated."""
    async with database.read() as tx:
        rows = (
            await tx.execute(sa.select(allocations).where(allocations.c.device_id.is_not(None)))
        ).all()
    moves = []
    for row in rows:
        amount = thousandths(row.slot, row.amount)
        moves.append((row.allocated_at, 1, row.device_id, amount))
        if row.freed_at is not None:
            # If times are equal, the release sorts before the allocation.
            moves.append((row.freed_at, 0, row.device_id, -amount))
    held: Counter[str] = Counter()
    violations = []
    for at, _, device, amount in sorted(moves):
        held[device] += amount
        if held[device] > SHARE_UNIT:
            violations.append(f"{device} held {held[device]} at {at}")
    return violations


def run_cycles_with_kills(hub: RunningHub, chance: random.Random) -> Counter[str]:
    """Run all cycles while components are killed; return the number of sessions by final status."""
    kills = max(len(COMPONENTS), CYCLES // CYCLES_PER_KILL)
    steps = Steps([chance.randrange(4 * CYCLES * 9 // 10) for _ in range(kills)])
    # Kill each component at least once. The order is random.
    victims = [*COMPONENTS, *(chance.choice(COMPONENTS) for _ in range(kills - len(COMPONENTS)))]
    chance.shuffle(victims)
    seeds = [chance.random() for _ in range(CYCLES)]
    clients = [RetryingClient(hub, name) for name in USERS]

    def work(number: int) -> str:
        client = clients[number % len(clients)]
        try:
            return cycle(client, steps, number, random.Random(seeds[number]))
        except BaseException:
            for each in clients:
                each.is_aborted.set()
            raise

    def kill_components() -> None:
        for point, component in zip(steps.kill_points(), victims, strict=True):
            if clients[0].is_aborted.is_set():
                return
            print(f"killing the {component} after step {point}", flush=True)
            kill(hub, component)
            duplicates = {
                key: pids for key, pids in session_processes(hub).items() if len(pids) > 1
            }
            assert not duplicates

    with ThreadPoolExecutor(WORKERS + 1) as pool:
        attacker = pool.submit(kill_components)
        try:
            ends = Counter(pool.map(work, range(CYCLES)))
        finally:
            steps.end()
        attacker.result()
    return ends


def active_servers(hub: RunningHub) -> list[str]:
    """Return the servers that the Hub considers active: running, starting or stopping."""
    token = (hub.home / "secrets" / "run-token").read_text()
    answer = httpx.get(
        f"{hub.url}/hub/api/users",
        params={"state": "active"},
        headers={"Authorization": f"token {token}"},
        timeout=30,
    )
    assert answer.status_code == 200, answer.text
    return [f"{user['name']}/{name}" for user in answer.json() for name in user["servers"]]


def test_a_pending_session_survives_the_kill_of_every_component(hub: RunningHub) -> None:
    """Both GPUs are allocated, so a third session remains pending until a GPU is released."""
    whole = {"cpu": "1", "mem": "256m", "cuda.device": "1"}
    first, second = (running_session(hub, "user", resources=whole) for _ in range(2))
    client = RetryingClient(hub, "user2")
    body = {"name": "pending-session", "project": "default", "resources": whole}
    made = client.call("POST", "/sessions", json=body)
    assert made.status_code == 201, made.text
    key = made.json()["id"]
    for component in COMPONENTS:
        kill(hub, component)
        assert client.session(key)["status"] == "PENDING"
        assert set(session_processes(hub)) == {first["id"], second["id"]}
    RetryingClient(hub, "user").call("DELETE", f"/sessions/{first['id']}")
    session_in(hub, "user2", key, "RUNNING", ended=("ERROR", "CANCELLED", "TERMINATED"))
    assert set(session_processes(hub)) == {second["id"], key}


def batch_processes(hub: RunningHub) -> dict[str, list[int]]:
    """Return the pids of the running batch sessions, by session id."""
    pids: dict[str, list[int]] = {}
    for process in psutil.process_iter():
        try:
            environ = process.environ()
            is_ours = environ.get("BAI_AGENT_ID") == agent_of(hub) and "BAI_SESSION_ID" in environ
            if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                pids.setdefault(environ["BAI_SESSION_ID"], []).append(process.pid)
        except psutil.Error:
            continue
    return pids


def agent_of(hub: RunningHub) -> str:
    with hub.rest("admin") as admin:
        return str(admin.get("/agents").json()["items"][0]["id"])


async def test_kills_neither_lose_nor_repeat_the_batch_sessions_of_an_agent(
    own_hub: Callable[..., RunningHub],
) -> None:
    print(f"BAI_FAULT_SEED={SEED}")
    chance = random.Random(SEED)
    capacity = {"BAI_AGENT_CPU": "6", "BAI_AGENT_MEM": "16g", "BAI_AGENT_RUNS_BATCH": "1"}
    hub = own_hub(environment=capacity).start()
    client = RetryingClient(hub, "user")
    made = client.call("POST", "/vfolders", json={"name": "runs"})
    assert made.status_code == 201, made.text
    keys = []
    for number in range(BATCH_SESSIONS):
        body = {
            "name": f"batch-{number:04}",
            "project": "default",
            "type": "batch",
            "startup_command": f"echo run >> runs/$BAI_SESSION_ID; sleep {chance.random() * 3}",
            "resources": {"cpu": "1", "mem": "256m"},
            "mounts": [{"vfolder": made.json()["id"], "path": "runs"}],
        }
        created = client.call("POST", "/sessions", json=body)
        assert created.status_code == 201, created.text
        keys.append(created.json()["id"])
    stopped = set(chance.sample(keys, BATCH_SESSIONS // 4))
    seeds = {key: chance.random() for key in stopped}

    def stop(key: str) -> None:
        own = random.Random(seeds[key])
        status = own.choice(("SCHEDULED", "PREPARED", "RUNNING"))
        client.session(key, wait=status, timeout="20")
        forced = {"force": "true"} if own.random() < 0.3 else {}
        answer = client.call("DELETE", f"/sessions/{key}", params=forced)
        assert answer.status_code in (202, 404, 409), answer.text

    def kill_at_random() -> None:
        for component in KILLED:
            threading.Event().wait(chance.random() * 4)
            print(f"killing the {component}", flush=True)
            kill(hub, component)

    with ThreadPoolExecutor(WORKERS) as pool:
        attacker = pool.submit(kill_at_random)
        list(pool.map(stop, sorted(stopped)))
        attacker.result()
    ends = {key: await asyncio.to_thread(client.end_of, key) for key in keys}
    files = [path for path in hub.home.rglob("*") if path.name in ends and path.is_file()]
    runs = {path.name: path.read_text().count("run") for path in files}
    for key, session in ends.items():
        if key in stopped:
            assert runs.get(key, 0) <= 1, session
        else:
            assert (session["status"], session["exit_code"]) == ("TERMINATED", 0), session
            assert (session["started_by"], runs.get(key)) == ("agent", 1), session
    print(Counter(session["status"] for session in ends.values()))
    wait_until(lambda: not batch_processes(hub), TIMEOUT_SECONDS, "the last process to end")
    assert active_servers(hub) == []
    reported = reported_seconds(hub)
    hub.stop()
    database = Database(f"sqlite+aiosqlite:///{hub.home}/bai.sqlite")
    try:
        assert await AllocationStore(database).audit() == []
        async with database.read() as tx:
            held = sa.select(sa.func.count()).where(allocations.c.freed_at.is_(None))
            assert await tx.scalar(held) == 0
        await check_usage_records(database, reported)
    finally:
        await database.close()
