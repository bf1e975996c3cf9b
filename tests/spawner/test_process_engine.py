"""The process engine with real processes, with and without a sandbox."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from traitlets import TraitError

from bai_services.core.sessions.launch_plan import LaunchPlan
from bai_services.core.sessions.logs import is_timed, without_times
from bai_services.engines import bubblewrap, processes
from bai_services.engines.base import EngineError, Running
from bai_services.engines.process import ProcessEngine
from bai_spawner.readiness import wait_until_ready
from tests.spawner import standin
from tests.spawner.plans import plan
from tests.spawner.standin import ask
from tests.testbed.wait import wait_until, wait_until_async

HAS_SANDBOX = not isinstance(bubblewrap.probe(1000, 1000), str)
needs_sandbox = pytest.mark.skipif(not HAS_SANDBOX, reason="bubblewrap does not work on this host")
KINDS = [pytest.param("bubblewrap", marks=needs_sandbox), "none"]

Start = Callable[..., Any]


@pytest.fixture
async def start_plan(tmp_path: Path) -> AsyncIterator[Start]:
    """A function that starts a plan with or without sandbox; all kernels are stopped at the end."""
    begun: list[tuple[ProcessEngine, Running]] = []

    async def start(
        kind: str, given: LaunchPlan | None = None, wait: bool = True
    ) -> tuple[ProcessEngine, Running]:
        given = given or plan()
        engine = ProcessEngine(
            state_dir=str(tmp_path / "bai"), isolation=kind, stop_grace_seconds=5
        )
        ip, port = await engine.address(given)
        environ = {
            "JUPYTERHUB_SERVICE_URL": f"http://{ip}:{port}/user/ada/",
            "JUPYTERHUB_API_TOKEN": "hub-secret-of-the-session",
        }
        command = list(given.command) or [sys.executable, "-c", standin.SOURCE]
        running = await engine.start(given, environ, command)
        begun.append((engine, running))
        if wait:
            ended = await wait_until_ready(
                f"{running.url}/user/ada/api", 20, 0.02, lambda: engine.poll(running)
            )
            assert ended is None, await engine.read_log(running, 9999)
        return engine, running

    yield start
    for engine, running in begun:
        await engine.stop(running, now=True)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_session_responds_and_stops(start_plan: Start, kind: str) -> None:
    engine, running = await start_plan(kind)
    assert await engine.poll(running) is None
    assert await ask(running, "api") == (200, "here")
    await ask(running, "say", text="a line of the log")

    ended = await engine.stop(running)

    assert ended.code == 128 + signal.SIGTERM
    assert (await engine.poll(running)).code == ended.code
    assert "a line of the log" in await engine.read_log(running, 1000)
    assert not processes.session_processes(running.session_id)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_session_can_read_its_setup_file(
    start_plan: Start, tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "setup.json"
    file.write_text('{"variables": {"TOKEN": "s3cret"}, "scripts": []}')
    file.chmod(0o600)
    mount = {"source": str(file), "target": str(file), "read_only": True, "is_own": True}
    injection = {"environ": {"BAI_SETUP_FILE": str(file)}, "mounts": [mount]}
    script = (
        "import os; from bai_labext.session_setup import apply; apply(os.environ); "
        "print('got', os.environ['TOKEN'])"
    )
    given = plan(injection=injection, command=[sys.executable, "-c", script])
    engine, running = await start_plan(kind, given, wait=False)
    await wait_until_async(lambda: engine.poll(running), 20, "the end of the command")
    assert "got s3cret" in await engine.read_log(running, 1000)


@pytest.mark.parametrize("kind", KINDS)
async def test_stop_kills_forked_processes(start_plan: Start, kind: str) -> None:
    engine, running = await start_plan(kind)
    await ask(running, "fork")
    await wait_until_async(
        lambda: sum(
            b"time.sleep" in _command(p) for p in processes.session_processes(running.session_id)
        ),
        10,
        "the forked process",
    )

    await engine.stop(running)

    assert processes.session_processes(running.session_id) == []


def _command(process: psutil.Process) -> bytes:
    try:
        return " ".join(process.cmdline()).encode()
    except psutil.Error:
        return b""


@pytest.mark.parametrize("kind", KINDS)
async def test_saved_state_is_enough_to_poll_and_stop(start_plan: Start, kind: str) -> None:
    engine, running = await start_plan(kind)
    saved = json.loads(json.dumps(running.to_state()))
    later = ProcessEngine(state_dir=engine.state_dir, isolation=kind, stop_grace_seconds=5)
    loaded = Running.from_state(saved)

    assert await later.poll(loaded) is None
    assert (await later.stop(loaded)).code == 128 + signal.SIGTERM
    assert (await later.poll(loaded)).code == 128 + signal.SIGTERM


@pytest.mark.parametrize("kind", KINDS)
async def test_session_survives_a_clock_change(
    start_plan: Start, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux computes the boot time from the clock, so a clock change also changes the boot time."""
    engine, running = await start_plan(kind)
    booted = psutil.boot_time()
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: booted - 7)

    assert await engine.poll(running) is None
    assert (await engine.stop(running)).code == 128 + signal.SIGTERM


@pytest.mark.parametrize("kind", KINDS)
async def test_exit_code_and_log_of_an_ended_kernel_are_available(
    start_plan: Start, kind: str
) -> None:
    words = [sys.executable, "-c", "import sys; print('no luck', flush=True); sys.exit(7)"]
    engine, running = await start_plan(kind, plan(command=words), wait=False)

    ended = await wait_until_async(lambda: engine.poll(running), 10, "the end of the kernel")

    assert ended.code == 7
    log = await engine.read_log(running, 1000)
    assert is_timed(log) and without_times(log) == "no luck\n"
    assert not processes.is_alive(running.log_pid, running.log_started)


@pytest.mark.parametrize("size", ["much", "63k"])
def test_invalid_log_size_is_rejected(size: str) -> None:
    with pytest.raises(TraitError, match="log_max_size"):
        ProcessEngine(log_max_size=size)


def test_kill_ignores_a_process_that_ends_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    # The process seems to be alive when it is checked, but ends before it is killed.
    monkeypatch.setattr(processes, "is_alive", lambda pid, started: True)
    processes.kill(ended.pid, "")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_kernel_killed_from_outside_leaves_no_processes(
    start_plan: Start, kind: str
) -> None:
    engine, running = await start_plan(kind)
    os.kill(running.pid, signal.SIGKILL)

    ended = await wait_until_async(lambda: engine.poll(running), 10, "the end of the kernel")

    assert ended.text == "killed from outside"
    assert processes.session_processes(running.session_id) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_second_start_of_a_session_removes_the_first_kernel(
    start_plan: Start, kind: str
) -> None:
    given = plan()
    _, first = await start_plan(kind, given)
    process = psutil.Process(first.pid)
    engine, second = await start_plan(kind, given)

    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    assert await ask(second, "api") == (200, "here")
    assert await engine.poll(second) is None
    with pytest.raises(httpx.ConnectError):
        await ask(first, "api")


@pytest.mark.parametrize("kind", KINDS)
async def test_environment_has_the_session_id_and_no_forged_variables(
    start_plan: Start, kind: str
) -> None:
    given = plan(
        environ={"MINE": "1", "JUPYTERHUB_USER": "eve", "BAI_SESSION_ID": "forged"},
        injection={"environ": {"CUDA_VISIBLE_DEVICES": "GPU-1"}},
    )
    _, running = await start_plan(kind, given)

    _, environ = await ask(running, "environ")

    assert environ["MINE"] == "1"
    assert "JUPYTERHUB_USER" not in environ
    assert environ["BAI_SESSION_ID"] == given.session_id
    assert environ["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert environ["HOME"].endswith("/home/work" if kind == "bubblewrap" else "/home")
    assert "BAI_HOME" not in environ


@needs_sandbox
async def test_secrets_are_not_on_command_lines(start_plan: Start) -> None:
    _, running = await start_plan("bubblewrap")
    for process in (psutil.Process(running.pid), psutil.Process(running.init_pid)):
        assert "hub-secret" not in " ".join(process.cmdline())
    outside = psutil.Process(running.pid).environ()
    assert set(outside) == {"BAI_SESSION_ID", "BAI_KERNEL_ID", "BAI_AGENT_ID"}


@needs_sandbox
async def test_a_sandbox_contains_only_its_home_its_mounts_and_programs(
    start_plan: Start, tmp_path: Path
) -> None:
    own, granted, foreign = (tmp_path / name for name in ("own", "granted", "foreign"))
    for folder in (own, granted, foreign):
        folder.mkdir()
        (folder / "file").write_text(folder.name)
    given = plan(
        mounts=[
            {"source": str(own), "target": "/home/work/data", "read_only": False},
            {"source": str(granted), "target": "/home/work/papers", "read_only": True},
        ]
    )
    engine, running = await start_plan("bubblewrap", given)

    assert await ask(running, "whoami") == (200, [given.uid, "/home/work", "main1"])
    assert await ask(running, "read", path="/home/work/data/file") == (200, "own")
    assert (await ask(running, "write", path="/home/work/data/new"))[0] == 200
    assert (own / "new").read_text() == "written"
    assert await ask(running, "read", path="/home/work/papers/file") == (200, "granted")
    status, error = await ask(running, "write", path="/home/work/papers/new")
    assert status == 418 and "Read-only" in error
    for hidden in (foreign / "file", "/etc/shadow"):
        status, answer = await ask(running, "read", path=str(hidden))
        assert status == 418 or answer == "", hidden
    assert (await ask(running, "ls", path=engine.state_dir))[0] == 418
    for path in ("/usr/bai-test", "/etc/bai-test", "/bai-test", f"{sys.prefix}/bai-test"):
        assert (await ask(running, "write", path=path))[0] == 418
    assert (await ask(running, "write", path="/tmp/mine"))[0] == 200
    assert not os.path.exists("/tmp/mine")  # noqa: ASYNC240  blocks for microseconds
    assert (await ask(running, "write", path="/home/work/kept"))[0] == 200
    _, pids = await ask(running, "ls", path="/proc")
    assert len([pid for pid in pids if pid.isdigit()]) <= 3


@needs_sandbox
async def test_two_sandboxes_share_no_files(start_plan: Start) -> None:
    _, first = await start_plan("bubblewrap")
    _, second = await start_plan("bubblewrap")
    for path in ("/home/work/secret", "/tmp/secret"):
        assert (await ask(first, "write", path=path))[0] == 200

    assert (await ask(second, "ls", path="/home/work"))[1] == []
    # /tmp may contain other entries, for example if Python is installed below it.
    assert "secret" not in (await ask(second, "ls", path="/tmp"))[1]


async def test_without_a_sandbox_folders_are_symbolic_links(
    start_plan: Start, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    mounts = [
        {"source": str(own), "target": "/home/work/data", "read_only": False},
        {"source": str(own), "target": "/home/work/a/b", "read_only": True, "is_own": True},
    ]
    engine, running = await start_plan("none", plan(mounts=mounts))
    home = Path(engine.state_dir) / "sessions" / running.session_id / "home"

    await ask(running, "write", path=str(home / "data" / "new"))

    assert (own / "new").read_text() == "written"
    assert (home / "a" / "b" / "new").exists()
    user_link = home / "shortcut"
    user_link.symlink_to(own)
    await engine.stop(running)
    await engine.remove(running)
    assert not (home / "data").is_symlink()
    assert not (home / "a" / "b").is_symlink()
    assert user_link.is_symlink()
    assert (own / "new").exists()


@pytest.mark.parametrize(
    ("mount", "words"),
    [
        pytest.param(
            {"target": "/home/work/data", "read_only": True},
            "granted read-only",
            id="granted read-only",
        ),
        pytest.param(
            {"target": "/data", "read_only": False},
            "outside /home/work",
            id="outside the home",
        ),
    ],
)
async def test_without_a_sandbox_unsafe_mounts_are_rejected(
    start_plan: Start, tmp_path: Path, mount: dict[str, Any], words: str
) -> None:
    with pytest.raises(EngineError, match=words) as refused:
        await start_plan("none", plan(mounts=[{"source": str(tmp_path), **mount}]))
    assert "bubblewrap" in str(refused.value)


@pytest.mark.parametrize("kind", KINDS)
async def test_missing_mount_source_is_reported(
    start_plan: Start, kind: str, tmp_path: Path
) -> None:
    gone = {"source": str(tmp_path / "gone"), "target": "/home/work/data", "read_only": False}
    with pytest.raises(EngineError, match="does not exist on the machine"):
        await start_plan(kind, plan(mounts=[gone]))


async def test_start_fails_if_required_bubblewrap_does_not_work(start_plan: Start) -> None:
    engine = ProcessEngine({"bubblewrap": "bubblewrap is not here"}, isolation="bubblewrap")
    with pytest.raises(EngineError, match="requires it for every session"):
        await engine.start(plan(), {"JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:1/"}, ["true"])


@needs_sandbox
async def test_session_survives_the_hub_process(tmp_path: Path) -> None:
    """A subprocess takes the role of the Hub: it starts a session and then kills itself."""
    given = plan()
    code = (
        "import asyncio, sys, json\n"
        "from bai_services.engines.process import ProcessEngine\n"
        "from tests.spawner.plans import plan\n"
        "async def main():\n"
        f"    engine = ProcessEngine(state_dir={str(tmp_path)!r}, isolation='bubblewrap')\n"
        f"    given = plan(session_id={given.session_id!r})\n"
        "    running = await engine.start(given, {'JUPYTERHUB_SERVICE_URL': 'http://127.0.0.1:9/'},"
        " ['sleep', '600'])\n"
        "    print(json.dumps(running.to_state()), flush=True)\n"
        "    import os, signal\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    hub = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await hub.communicate()
    running = Running.from_state(json.loads(output))
    engine = ProcessEngine(state_dir=str(tmp_path), stop_grace_seconds=5)

    assert await engine.poll(running) is None
    assert (await engine.stop(running)).code == 128 + signal.SIGTERM
    wait_until(
        lambda: not processes.session_processes(given.session_id), 5, "the end of the kernel"
    )
