"""`make run`: start, stop with Ctrl-C, and recovery after SIGKILL of each process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from tests.hub import ROOT, Component, RunningHub, running_session, session_in
from tests.testbed.wait import wait_until

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """The demo of the tests in this file, without Docker. The fixture `hub` starts it."""
    environment = {"DOCKER_HOST": "unix:///no/such/socket", "BAI_AGENT_CPU": "2"}
    running = RunningHub(tmp_path_factory.mktemp("run"), engine="", environment=environment)
    yield running
    running.stop()


@pytest.fixture
def hub(demo: RunningHub) -> RunningHub:
    """The running demo. Tests share it, because a start takes 10 s of CPU time."""
    if not demo.is_up():
        demo.stop()
        demo.start()
    return demo


def is_signed_in(client: httpx.Client) -> bool:
    return client.get("/hub/home").status_code == 200


def test_help_lists_the_variables_and_starts_nothing() -> None:
    command = [sys.executable, ROOT / "scripts/run", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0
    assert "BAI_DEMO_PASSWORD" in done.stdout


def test_ctrl_c_stops_all_processes_and_the_next_run_keeps_sign_ins(hub: RunningHub) -> None:
    text = hub.wait_for_output("Ctrl-C")
    assert hub.url in text
    assert "Sessions run as processes." in text
    assert "Not in Docker: no Docker engine responds" in text
    for name in ("admin", "domain-admin", "user", "user2", "acme-user"):
        assert name in text
    with hub.sign_in("user") as browser:
        assert hub.interrupt() == 0
        assert hub.left_running() == []
        hub.start()
        # The sign-in is still valid: the next run uses the same cookie secret and databases.
        assert is_signed_in(browser)


def test_sessions_survive_a_killed_hub_and_end_with_ctrl_c(hub: RunningHub) -> None:
    session = running_session(hub, "user")
    hub.kill("hub")
    hub.start()
    session_in(hub, "user", session["id"], "RUNNING")
    with hub.rest("user") as rest:
        headers = {"Authorization": rest.headers["Authorization"]}
    status = f"{hub.url}{session['url']}api/status"
    assert httpx.get(status, headers=headers, timeout=60).status_code == 200
    whole = {"name": "waits", "project": "default", "resources": {"cpu": "2", "mem": "256m"}}
    with hub.rest("user") as rest:
        made = rest.post("/sessions", json=whole)
        assert made.status_code == 201, made.text
        waiting = made.json()["id"]
    assert hub.interrupt() == 0
    assert hub.left_running() == []
    assert f"Stopping 1 session: user/{session['hub_server']} …" in hub.output.read_text()
    stopped_at = datetime.now(UTC)
    hub.start()
    # The pending session starts in the next run, because the other session no longer uses a core.
    session_in(hub, "user", waiting, "RUNNING")
    with hub.rest("user") as rest:
        history = rest.get(f"/sessions/{waiting}/history").json()["items"]
        rest.delete(f"/sessions/{waiting}")
    session_in(hub, "user", waiting, "TERMINATED")
    times = [
        datetime.fromisoformat(step["at"]) for step in history if step["to_status"] != "PENDING"
    ]
    assert min(times) > stopped_at
    ended = session_in(hub, "user", session["id"], "TERMINATED")
    assert (ended["result"], ended["allocations"]) == ("undefined", [])
    assert ended["status_info"]


def test_all_processes_exit_after_the_launcher_is_killed(hub: RunningHub) -> None:
    hub.kill("launcher")
    wait_until(lambda: not hub.left_running(), 60, "the Hub to exit")
    # Ports and locks are also released, so the hub can start again with the same folder.
    hub.start()
    with hub.sign_in("user") as browser:
        assert is_signed_in(browser)


def test_sign_ins_survive_killed_processes_and_ctrl_c_ends_all_processes(hub: RunningHub) -> None:
    with hub.sign_in("user") as browser:
        old_proxy = hub.process_of("proxy")
        hub.kill("proxy")
        wait_until(hub.is_up, 60, "the Hub to restart the proxy")
        assert hub.process_of("proxy") != old_proxy
        assert is_signed_in(browser)

        proxy, manager = hub.process_of("proxy"), hub.process_of("manager")
        hub.kill("hub")
        hub.start()
        assert is_signed_in(browser)
        assert hub.process_of("proxy") != proxy
        assert hub.process_of("manager") != manager

    # The supervisor restarts a killed service. The Hub does not log that the service exited.
    log = hub.home / "hub.log"
    earlier = log.read_text()
    components: tuple[Component, ...] = ("manager", "agent")
    for component in components:
        before = hub.process_of(component)
        hub.kill(component)
        assert hub.process_of(component) != before
        wait_until(hub.is_up, 60, f"all components to respond with a new {component}")
    assert "exited with status" not in log.read_text().removeprefix(earlier)
    assert hub.interrupt() == 0
    assert hub.left_running() == []


def run(home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts/run")],
        env={**os.environ, "BAI_HOME": str(home), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_port_in_use_is_reported(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = run(tmp_path, BAI_PORT=str(port), BAI_ENGINE="process")
    assert done.returncode == 1
    assert f"port {port} is in use; set BAI_PORT" in done.stdout


@pytest.mark.parametrize(
    "environment, text",
    [
        ({"BAI_ENGINE": "odd"}, "BAI_ENGINE=odd is unknown"),
        ({"BAI_PORT": "many"}, "BAI_PORT=many is not a valid port"),
        ({"BAI_PORT": "9" * 5000}, "is not a valid port"),
        (
            {"BAI_ENGINE": "docker", "DOCKER_HOST": "unix:///no/such/socket"},
            "BAI_ENGINE=docker, but no Docker engine responds",
        ),
    ],
    ids=["unknown engine", "invalid port", "very long port", "Docker required but not available"],
)
def test_an_invalid_configuration_is_reported(
    tmp_path: Path, environment: dict[str, str], text: str
) -> None:
    done = run(tmp_path, **environment)
    assert done.returncode == 1
    assert text in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
