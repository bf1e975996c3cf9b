"""The manager process: start with an empty folder, wait for a used port, orderly shutdown."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.testbed import ComponentMissing
from tests.testbed.dead_mount import dead_mount
from tests.testbed.ports import free_port
from tests.testbed.skip import skip_or_fail
from tests.testbed.wait import wait_until

ENVIRON = {k: v for k, v in os.environ.items() if not k.startswith(("BAI_", "JUPYTERHUB_"))}


@contextmanager
def manager_process(home: Path, port: int, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    with open(home / "log", "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "bai_services.app"],
            env={
                **ENVIRON,
                "BAI_HOME": str(home),
                "JUPYTERHUB_SERVICE_URL": f"http://127.0.0.1:{port}",
                **environ,
            },
            stderr=log,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def is_up(port: int) -> bool:
    try:
        health = httpx.get(f"http://127.0.0.1:{port}/services/bai/api/v1/health", timeout=5)
    except httpx.TransportError:
        return False
    return health.status_code == 200


def test_manager_serves_and_stops_on_sigterm(tmp_path: Path) -> None:
    port = free_port()
    with manager_process(tmp_path, port, BAI_LOG_FORMAT="json") as process:
        wait_until(lambda: process.poll() is not None or is_up(port), 60, "the manager")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert "the manager is stopping" in [line["message"] for line in lines]
    secrets = [path.read_text() for path in (tmp_path / "secrets").iterdir()]
    assert not any(secret in str(lines) for secret in secrets)


def test_manager_that_stops_answers_long_polls(tmp_path: Path) -> None:
    """The ended polls are not logged as failures, and the response tells clients to repeat the
    request.
    """
    port, path = free_port(), "/services/bai/api/v1/gateway/routes"
    with (
        manager_process(tmp_path, port) as process,
        contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as client,
    ):
        wait_until(lambda: process.poll() is not None or is_up(port), 60, "the manager")
        token = (tmp_path / "secrets" / "gateway-token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        client.request("GET", path, headers=headers)
        version = json.loads(client.getresponse().read())["version"]
        client.request("GET", f"{path}?wait=60&version={version}", headers=headers)
        assert is_up(port)  # the manager has read the earlier request
        process.send_signal(signal.SIGTERM)
        answer = client.getresponse()
        assert (answer.status, json.loads(answer.read())["error"]) == (503, "unavailable")
        assert answer.headers["Connection"] == "close"
        assert process.wait(20) == 0
    log = (tmp_path / "log").read_text()
    assert " 500 " not in log and "Traceback" not in log, log


# Starts the manager, prints its process id, and ends as soon as the manager listens. The manager
# then still imports its modules.
SHORT_LIVED_HUB = """
import subprocess, sys, socket, time
manager = subprocess.Popen([sys.executable, "-m", "bai_services.app"], stdout=subprocess.DEVNULL)
print(manager.pid, flush=True)
while True:
    try:
        socket.create_connection(("127.0.0.1", int(sys.argv[1]))).close()
        break
    except ConnectionRefusedError:
        time.sleep(0.02)
"""


def test_manager_exits_if_its_hub_ends_while_it_starts(tmp_path: Path) -> None:
    port, hub = free_port(), free_port()
    environ = {
        **ENVIRON,
        "BAI_HOME": str(tmp_path),
        "JUPYTERHUB_SERVICE_URL": f"http://127.0.0.1:{port}",
        "JUPYTERHUB_SERVICE_PREFIX": "/services/bai/",
        "JUPYTERHUB_API_URL": f"http://127.0.0.1:{hub}/hub/api",
        "JUPYTERHUB_API_TOKEN": "token",
        "JUPYTERHUB_CLIENT_ID": "service-bai",
    }
    with open(tmp_path / "log", "wb") as log:
        started = subprocess.run(
            [sys.executable, "-c", SHORT_LIVED_HUB, str(port)],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=log,
            timeout=60,
            check=True,
        )
    pid = int(started.stdout)
    try:
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), 60, "the manager to exit")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_manager_waits_for_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with manager_process(tmp_path, port) as process:
            log = tmp_path / "log"
            wait_until(
                lambda: "is in use; waiting" in log.read_text(), 60, "the warning about the port"
            )
            holder.close()
            wait_until(lambda: process.poll() is not None or is_up(port), 60, "the manager")
            assert process.poll() is None


def test_two_managers_started_together_migrate_one_database(tmp_path: Path) -> None:
    first, second = free_port(), free_port()
    with manager_process(tmp_path, first) as one, manager_process(tmp_path, second) as two:
        for process, port in ((one, first), (two, second)):
            wait_until(
                lambda p=process, n=port: p.poll() is not None or is_up(n), 90, "both managers"
            )
            assert process.poll() is None, (tmp_path / "log").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_manager_stops_on_sigterm_with_a_dead_storage_host(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    port, hosts = free_port(), f"near=local:{tmp_path}/near,far=local:{tmp_path}/disk"
    log = tmp_path / "log"
    try:
        with (
            dead_mount(tmp_path / "disk"),
            manager_process(tmp_path, port, BAI_STORAGE_HOSTS=hosts) as process,
        ):
            # The manager logs this line after it has installed the signal handlers.
            wait_until(lambda: "the manager listens on" in log.read_text(), 60, "the manager")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, log.read_text()
    except ComponentMissing as reason:
        skip_or_fail("fuse", reason)
    assert "storage host far does not respond" in log.read_text()
    assert "file operations are still running" in log.read_text()
