"""Session starts with folders on storage hosts that are slow, read-only, full or unavailable.

Slow, read-only and full hosts do not prevent a start. If a host is unavailable, the starts that
need its folders fail after a timeout; other starts are unaffected.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core.folders.storage_hosts import PERMISSIONS
from bai_services.manager.folders import mounts, quotas
from bai_services.manager.settings import StorageHostSettings
from bai_services.storage import host as storage_host
from bai_services.storage.backends.registry import ENTRY_POINTS
from bai_services.storage.host import MIN_FREE_BYTES
from tests.testbed import ComponentMissing
from tests.testbed.dead_mount import dead_mount
from tests.testbed.distribution import install
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api, MovableClock, make_world, manager_on, serving
from tests.testbed.skip import skip_or_fail

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting requires root")

SLOW = """
import time
from bai_services.storage.backends.local import LocalBackend


class SlowBackend(LocalBackend):
    def capabilities(self):
        time.sleep(0.2)
        return super().capabilities()
"""
MIB = 2**20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=40m", "none", str(place)], capture_output=True
    )
    if done.returncode:
        skip_or_fail("mount", done.stderr.decode())
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
async def api(tmp_path: Path, disk: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    """A manager with the folder ``data`` of ``user`` on the storage host under test."""
    points = {ENTRY_POINTS: {"slow": "bai_slow:SlowBackend"}}
    install(tmp_path / "packages", "bai_slow", SLOW, points, monkeypatch)
    hosts = (
        StorageHostSettings("local", "slow", disk),
        StorageHostSettings("near", "local", tmp_path / "near"),
    )
    url = f"sqlite+aiosqlite:///{tmp_path}/bai.sqlite"
    clock = MovableClock()
    async with (
        manager_on(url, tmp_path, clock, storage_hosts=hosts) as manager,
        serving(await make_world(manager, clock)) as served,
    ):
        await manager.folders.vfolders.start()
        user = await served.client("user")
        await user.post("/vfolders", {"name": "data"})
        yield served


@pytest.fixture
async def agent(api: Api) -> FakeAgent:
    fake_agent = FakeAgent(api.agent)
    await fake_agent.beat()
    api.world.manager.start_session_loops()
    return fake_agent


async def create_and_launch(api: Api, agent: FakeAgent, name: str, *folders: str) -> dict[str, Any]:
    """Create a session that mounts the folders, prepare it, and return its launch plan."""
    user = await api.client("user")
    body = {"name": name, "mounts": [{"vfolder": folder} for folder in folders]}
    session = await user.post("/sessions", body)
    await wait_until_scheduled(user, session)
    await agent.prepare()
    session = await user.get(f"/sessions/{session['id']}", wait="PREPARED", timeout="20")
    assert session["status"] == "PREPARED", session
    where = {"user": session["hub_user"], "server": session["hub_server"]}
    return dict(await api.hub.post(f"/sessions/{session['id']}/launch", where))


async def wait_until_scheduled(user: Client, session: dict[str, Any]) -> None:
    # The first scheduling pass of a test run may JIT-compile the placement code.
    session = await user.get(f"/sessions/{session['id']}", wait="SCHEDULED", timeout="60")
    assert session["status"] != "PENDING", session


async def probed_host(api: Api) -> dict[str, Any]:
    await api.world.manager.folders.storage_hosts.get("local").probe()
    (shown,) = (await (await api.client("user")).get("/storage-hosts", name="local"))["items"]
    return dict(shown)


async def test_session_starts_with_a_slow_host(
    api: Api, agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_host, "SLOW_SECONDS", 0.1)
    shown = await probed_host(api)
    assert (shown["status"], "s to respond" in shown["message"]) == ("slow", True)
    (mount,) = (await create_and_launch(api, agent, "lab1", "data"))["mounts"]
    assert mount["target"] == "/home/work/data"


async def test_session_starts_with_a_full_host(api: Api, agent: FakeAgent, disk: Path) -> None:
    space = os.statvfs(disk)
    (disk / "fill").write_bytes(bytes(space.f_bavail * space.f_frsize - MIN_FREE_BYTES + MIB))
    shown = await probed_host(api)
    assert (shown["status"], "bytes are left" in shown["message"]) == ("full", True)
    assert (await create_and_launch(api, agent, "lab1", "data"))["mounts"]


async def test_session_starts_with_a_read_only_host(api: Api, agent: FakeAgent, disk: Path) -> None:
    words = ["mount", "-o", "remount,ro", str(disk)]
    await asyncio.to_thread(subprocess.run, words, check=True)
    shown = await probed_host(api)
    assert (shown["status"], shown["message"]) == ("read-only", "it is mounted read-only")
    assert (await create_and_launch(api, agent, "lab1", "data"))["mounts"]


@pytest.fixture
def exit_stack(api: Api, disk: Path) -> Iterator[ExitStack]:
    """A stack for dead mounts.

    The stack is closed before the manager, which would otherwise wait for the mounts.
    """
    with ExitStack() as stack:
        yield stack


async def test_unavailable_host_fails_only_the_sessions_that_need_it(
    api: Api, agent: FakeAgent, disk: Path, exit_stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "REACH_TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(storage_host, "PROBE_SECONDS", 0.5)
    try:
        exit_stack.enter_context(dead_mount(disk))
    except ComponentMissing as reason:
        skip_or_fail("fuse", reason)
    user = await api.client("user")
    lost = await user.post("/sessions", {"name": "lost", "mounts": [{"vfolder": "data"}]})
    await wait_until_scheduled(user, lost)
    # A session without the folder starts on the same agent.
    plan = asyncio.create_task(create_and_launch(api, agent, "lab1"))
    ended = await user.get(f"/sessions/{lost['id']}", wait="ERROR", timeout="20")
    assert ended["status"] == "ERROR", ended
    assert "storage host local does not respond" in ended["status_info"]
    assert ended["allocations"] == []
    assert (await plan)["mounts"] == []
    shown = await probed_host(api)
    assert (shown["status"], "does not respond" in shown["message"]) == ("gone", True)


async def test_unavailable_host_does_not_prevent_usage_counts_on_other_hosts(
    api: Api, disk: Path, exit_stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "SCAN_TIMEOUT_SECONDS", 0.3)
    monkeypatch.setattr(storage_host, "PROBE_SECONDS", 0.5)
    user, admin = await api.client("user"), await api.client("admin")
    every = {name: list(PERMISSIONS) for name in ("local", "near")}
    await admin.patch("/domains/default", {"allowed_vfolder_hosts": every})
    await user.post("/vfolders", {"name": "here", "host": "near"})
    where = "/vfolders/here/content"
    try:
        exit_stack.enter_context(dead_mount(disk))
    except ComponentMissing as reason:
        skip_or_fail("fuse", reason)
    # In the first round, the usage count on the dead host times out. In the second round, the host
    # is already marked as unavailable.
    for size in (3, 5):
        await user.call("PUT", where, query={"path": "f"}, content=b"x" * size)
        await api.world.manager.folders.quotas.step()
        here, lost = [await user.get(f"/vfolders/{name}") for name in ("here", "data")]
        assert (here["used_bytes"], lost["counted_at"]) == (size, None)
        await api.world.manager.folders.storage_hosts.get("local").probe()
        shown = (await user.get("/storage-hosts", sort="name"))["items"]
        assert [host["status"] for host in shown] == ["gone", "ready"]
        api.world.clock.advance(minutes=11)


async def test_start_is_rejected_if_the_host_fails_after_the_preparation(
    api: Api, agent: FakeAgent, disk: Path, exit_stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "REACH_TIMEOUT_SECONDS", 0.5)
    user = await api.client("user")
    session = await user.post("/sessions", {"name": "lab1", "mounts": [{"vfolder": "data"}]})
    await wait_until_scheduled(user, session)
    items = await agent.work(5)
    try:
        exit_stack.enter_context(dead_mount(disk))
    except ComponentMissing as reason:
        skip_or_fail("fuse", reason)
    # The manager accepts the agent's report without a check of the folder.
    await agent.report(items[0], injection={})
    session = await user.get(f"/sessions/{session['id']}", wait="PREPARED", timeout="20")
    assert session["status"] == "PREPARED", session
    where = {"user": session["hub_user"], "server": session["hub_server"]}
    answer = await api.hub.http.post(f"/sessions/{session['id']}/launch", json=where)
    assert answer.status_code == 503 and "does not respond" in answer.json()["message"]


async def test_missing_dot_folder_gives_a_notice(api: Api, agent: FakeAgent, disk: Path) -> None:
    user = await api.client("user")
    made = await user.post("/vfolders", {"name": ".local"})
    (disk / "user" / made["owner_id"] / made["id"]).rmdir()
    plan = await create_and_launch(api, agent, "lab1", "data")
    assert [mount["target"] for mount in plan["mounts"]] == ["/home/work/data"]
    session = await user.get("/sessions/lab1")
    (notice,) = session["notices"]
    assert "folder .local" in notice and "is missing in this session" in notice
