"""`bai_services.supervisor` restarts a module that was killed and ends with its parent."""

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

KEPT = [sys.executable, "-m", "bai_services.supervisor"]
SERVER = ["http:server", "0", "--bind", "127.0.0.1"]
PARENT = "import subprocess, sys; subprocess.run(sys.argv[1:])"


@contextmanager
def started(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def is_gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def server_under(pid: int, *, other_than: int | None = None) -> psutil.Process:
    """Return the process that listens somewhere below another one."""

    def found() -> psutil.Process | None:
        for child in psutil.Process(pid).children(recursive=True):
            try:
                if child.pid != other_than and child.net_connections():
                    return child
            except psutil.Error:
                continue
        return None

    return wait_until(found, 30, "the server to listen")


def test_who_is_killed_is_there_again() -> None:
    with started([*KEPT, *SERVER]) as keeper:
        first = server_under(keeper.pid)
        first.kill()
        second = server_under(keeper.pid, other_than=first.pid)
        assert keeper.poll() is None
        keeper.terminate()
        assert keeper.wait(30) == 0
        assert is_gone(second)


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_when_it_is_told(told: signal.Signals) -> None:
    with started([*KEPT, *SERVER]) as keeper:
        server = server_under(keeper.pid)
        keeper.send_signal(told)
        assert keeper.wait(30) == 0
        assert is_gone(server)


def test_nothing_outlives_a_keeper_that_is_killed() -> None:
    with started([*KEPT, *SERVER]) as keeper:
        server = server_under(keeper.pid)
        keeper.kill()
        wait_until(lambda: is_gone(server), 30, "the end of the server")


def test_nothing_outlives_the_parent_of_a_keeper() -> None:
    with started([sys.executable, "-c", PARENT, *KEPT, *SERVER]) as parent:
        server = server_under(parent.pid)
        keeper = server.parent()
        assert keeper is not None
        parent.kill()
        wait_until(lambda: is_gone(server) and is_gone(keeper), 30, "the end of both")


@pytest.mark.parametrize(
    ("text", "code", "starts"),
    [
        pytest.param("sys.exit(7)", 7, 1, id="one that cannot start: its code is handed on"),
        pytest.param("os.kill(os.getpid(), 9)", 137, 3, id="one that is always killed: given up"),
    ],
)
def test_what_does_not_come_up_is_not_kept(
    tmp_path: Path, text: str, code: int, starts: int
) -> None:
    (tmp_path / "ours").mkdir()
    source = f"import os, sys; print('started', flush=True); {text}"
    (tmp_path / "ours" / "part.py").write_text(source)
    done = subprocess.run([*KEPT, "ours:part"], env=_with(tmp_path), capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (code, ["started"] * starts)
    assert done.stderr.count("is started again") == starts - 1


def test_it_asks_for_a_module() -> None:
    done = subprocess.run([*KEPT, "part"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "PACKAGE:MODULE" in done.stderr


def _with(path: Path) -> Mapping[str, str]:
    return {**os.environ, "PYTHONPATH": str(path)}
