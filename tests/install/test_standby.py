"""A standby manager on another machine takes over while a session runs, as the manual describes."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.install.installation import (
    HOST,
    PROGRAM,
    RunningInstallation,
    clean_environment,
    free_port_range,
    read_file,
    run_bai_hub,
    start_session,
    write_certificate,
)
from tests.install.test_installation import PASSWORD, two_databases
from tests.testbed import ComponentMissing, second_machine
from tests.testbed.postgres import Postgres
from tests.testbed.second_machine import SecondMachine
from tests.testbed.skip import skip_or_fail
from tests.testbed.wait import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.postgres, pytest.mark.timeout(600)]

MANUAL = Path(__file__).parents[2] / "docs/admin-guide/operation.md"
BALANCER = "127.0.0.2"


def balancer_configuration(port: int, addresses: tuple[str, str]) -> str:
    """Return the configuration of HAProxy in the manual, with the addresses of the test."""
    block = re.search(r"^    defaults\n(?:(?:    .*)?\n)+", MANUAL.read_text(), re.MULTILINE)
    assert block is not None
    text = block[0].replace("10.0.0.9:8091", f"{BALANCER}:{port}")
    for name, address in zip(("10.0.0.5", "10.0.0.6"), addresses, strict=True):
        text = text.replace(f"{name}:8091", f"{address}:{port}")
    return "".join(line.removeprefix("    ") for line in text.splitlines(keepends=True))


@contextmanager
def balancer(folder: Path, port: int, addresses: tuple[str, str]) -> Iterator[None]:
    """Run HAProxy in front of the managers at the two addresses."""
    if shutil.which("haproxy") is None:
        skip_or_fail("haproxy", ComponentMissing("HAProxy is missing (scripts/testbed install)"))
    config = folder / "haproxy.cfg"
    config.write_text(balancer_configuration(port, addresses))
    with open(folder / "haproxy.log", "wb") as log:
        process = subprocess.Popen(["haproxy", "-db", "-f", config], stdout=log, stderr=log)
    try:
        yield
    finally:
        process.kill()
        process.wait(20)


@contextmanager
def standby(
    running: RunningInstallation, folder: Path, machine: SecondMachine, port: int
) -> Iterator[None]:
    """Run a second manager on the other machine, with a copy of the settings."""
    shutil.copytree(running.folder, folder)
    # The second manager has separate process ids, as on another machine. It cannot see that the
    # first manager ends.
    isolated = ["unshare", "--pid", "--fork", "--kill-child=SIGTERM", "--mount-proc"]
    command = [*isolated, PROGRAM, "run", "manager", folder, "--listen", machine.address]
    with open(running.state / "standby.log", "wb") as log:
        process = subprocess.Popen(
            [*machine.command(), *map(str, command)],
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(
            lambda: process.poll() is not None or health(machine.address, port).get("standby"),
            120,
            "the standby manager",
        )
        assert process.poll() is None, (running.state / "standby.log").read_text()[-3000:]
        yield
    finally:
        managers = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait(20)
        psutil.wait_procs(managers, timeout=40)


def health(address: str, port: int) -> dict[str, Any]:
    """Return the state that a manager reports; empty if it does not respond."""
    try:
        response = httpx.get(f"http://{address}:{port}/services/bai/api/v1/health", timeout=5)
    except httpx.TransportError:
        return {}
    # While no manager responds, the load balancer responds with an HTML page.
    return dict(response.json()) if "json" in response.headers["Content-Type"] else {}


@pytest.fixture
def machine() -> Iterator[SecondMachine]:
    try:
        with second_machine.running() as made:
            yield made
    except ComponentMissing as reason:
        skip_or_fail("docker", reason)


def test_a_standby_on_another_machine_takes_over_while_a_session_is_used(
    tmp_path: Path, postgres_server: Postgres, machine: SecondMachine
) -> None:
    certificate, key = write_certificate(tmp_path / "tls")
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    first = free_port_range(6)
    manager_port = first + 3
    with ExitStack() as stack:
        database = stack.enter_context(two_databases(postgres_server))
        options = ["--host", HOST, "--port", first + 5, "--internal-ports", first]
        options += ["--internal-address", machine.peer_address, "--managers-address", BALANCER]
        options += ["--certificate", certificate, "--certificate-key", key, "--user", "root"]
        options += ["--engine", "process", "--state", tmp_path / "state", "--database", database]
        options += ["--admin", "root-user", "--admin-email", "root@example.com"]
        options += ["--admin-password-file", tmp_path / "password"]
        run_bai_hub(PROGRAM, "init", tmp_path / "etc", *map(str, options))
        running = RunningInstallation(
            tmp_path / "etc", tmp_path / "state", first + 5, certificate, PASSWORD
        )
        addresses = (machine.peer_address, machine.address)
        stack.enter_context(balancer(tmp_path, manager_port, addresses))
        stack.callback(running.stop)
        running.start()
        stack.enter_context(standby(running, tmp_path / "etc2", machine, manager_port))
        rest = stack.enter_context(running.rest())
        session = start_session(running, rest)
        note = {"type": "file", "format": "text", "content": "kept"}
        with running.client(Authorization=rest.headers["Authorization"]) as client:
            client.put(f"{session['url']}api/contents/note.txt", json=note).raise_for_status()

        primary = running.process_of("manager")
        primary.kill()
        primary.wait(20)
        # The pages of the session work without the manager.
        assert read_file(running, rest, session, "note.txt") == "kept"
        wait_until(
            lambda: health(machine.address, manager_port).get("standby") is False,
            60,
            "the standby to take over",
        )
        wait_until(lambda: health(BALANCER, manager_port), 60, "the load balancer to switch")
        found = rest.get(f"/sessions/{session['id']}").json()
        assert (found["status"], found["restart_count"]) == ("RUNNING", 0)
        assert read_file(running, rest, session, "note.txt") == "kept"
        # The new manager schedules, and stops the session that the other one has started.
        second = start_session(running, rest)
        for one in (session, second):
            assert rest.delete(f"/sessions/{one['id']}").status_code == 202
        wait_until(
            lambda: rest.get(f"/sessions/{session['id']}").json()["status"] == "TERMINATED",
            60,
            "the end of the session",
        )
