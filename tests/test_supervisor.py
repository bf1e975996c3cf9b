"""`bai_services.system.supervisor` restarts a killed module and exits when its parent exits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.testbed.wait import wait_until

SUPERVISOR = [sys.executable, "-m", "bai_services.system.supervisor"]
SERVER = ["http:server", "0", "--bind", "127.0.0.1"]
PARENT = "import subprocess, sys; subprocess.run(sys.argv[1:])"


@contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def is_gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def is_listening(process: psutil.Process) -> bool:
    return any(one.status == psutil.CONN_LISTEN for one in process.net_connections())


def server_under(pid: int, *, other_than: int | None = None) -> psutil.Process:
    """Wait for a descendant of ``pid``, other than ``other_than``, that listens; return it."""

    def listening_child() -> psutil.Process | None:
        for child in psutil.Process(pid).children(recursive=True):
            try:
                if child.pid != other_than and is_listening(child):
                    return child
            except psutil.Error:
                continue
        return None

    return wait_until(listening_child, 30, "the server to listen")


def test_killed_module_is_restarted() -> None:
    with running([*SUPERVISOR, *SERVER]) as supervisor:
        first = server_under(supervisor.pid)
        first.kill()
        second = server_under(supervisor.pid, other_than=first.pid)
        assert supervisor.poll() is None
        supervisor.terminate()
        assert supervisor.wait(30) == 0
        assert is_gone(second)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_supervisor_and_module(number: signal.Signals) -> None:
    with running([*SUPERVISOR, *SERVER]) as supervisor:
        server = server_under(supervisor.pid)
        supervisor.send_signal(number)
        assert supervisor.wait(30) == 0
        assert is_gone(server)


def test_module_ends_if_the_supervisor_is_killed() -> None:
    with running([*SUPERVISOR, *SERVER]) as supervisor:
        server = server_under(supervisor.pid)
        supervisor.kill()
        wait_until(lambda: is_gone(server), 30, "the end of the server")


def test_supervisor_and_module_end_if_the_parent_is_killed() -> None:
    with running([sys.executable, "-c", PARENT, *SUPERVISOR, *SERVER]) as parent:
        server = server_under(parent.pid)
        supervisor = server.parent()
        assert supervisor is not None
        parent.kill()
        wait_until(
            lambda: is_gone(server) and is_gone(supervisor),
            30,
            "the supervisor and the server to exit",
        )


@pytest.mark.parametrize(
    ("text", "code", "starts"),
    [
        pytest.param("sys.exit(7)", 7, 1, id="failed start: exit code is passed on"),
        pytest.param("os.kill(os.getpid(), 9)", 137, 3, id="killed at each start: gives up"),
    ],
)
def test_supervisor_gives_up_on_a_module_that_fails_to_start(
    tmp_path: Path, text: str, code: int, starts: int
) -> None:
    (tmp_path / "package").mkdir()
    source = f"import os, sys; print('started', flush=True); {text}"
    (tmp_path / "package" / "module.py").write_text(source)
    command = [*SUPERVISOR, "package:module"]
    done = subprocess.run(command, env=_environ_with(tmp_path), capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (code, ["started"] * starts)
    assert done.stderr.count("restarting it") == starts - 1


def test_supervisor_without_a_module_prints_its_usage() -> None:
    done = subprocess.run([*SUPERVISOR, "package"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "PACKAGE:MODULE" in done.stderr


def _environ_with(path: Path) -> Mapping[str, str]:
    return {**os.environ, "PYTHONPATH": str(path)}
