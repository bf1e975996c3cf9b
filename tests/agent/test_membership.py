"""`bai-agent join` and `bai-agent leave` on this machine, with the engine process."""

from __future__ import annotations

import asyncio
import stat
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from bai_services.agent.commands import read_join
from bai_services.agent.membership import (
    Places,
    join,
    leave,
    local_address,
    manager_url,
    read_environment,
)
from bai_services.core.errors import BaiError, Conflict, Forbidden, InvalidRequest
from tests.install.installation import write_certificate
from tests.testbed.forwarder import forwarding
from tests.testbed.manager import Api
from tests.testbed.wait import wait_until_async

from .conftest import AGENT_ID


class Machine:
    """A machine whose state and units are in a folder of the test."""

    def __init__(self, api: Api, folder: Path) -> None:
        self.url = api.url
        self.places = Places(folder / "state", folder / "units")
        self.places.units.mkdir(parents=True)

    async def join(self, *arguments: str, engine: str = "process") -> str:
        """Join with these options of `bai-agent join`; return the output."""
        places = ["--state", str(self.places.state), "--units", str(self.places.units)]
        given = [self.url, "--id", AGENT_ID, "--engine", engine, *arguments, *places]
        lines: list[str] = []
        try:
            await join(*read_join(given), lines.append)
        except BaiError as error:
            raise type(error)("\n".join([*lines, error.message])) from error
        return "\n".join(lines)

    async def leave(self, timeout_seconds: float = 0, *, forces: bool = False) -> str:
        lines: list[str] = []
        await leave(self.places, timeout_seconds, forces=forces, tell=lines.append)
        return "\n".join(lines)


async def invite(api: Api, **spec: Any) -> str:
    admin = await api.client("admin")
    return str((await admin.post("/agent-invitations", spec))["token"])


@pytest.fixture
def machine(api: Api, tmp_path: Path) -> Machine:
    return Machine(api, tmp_path / "machine")


async def test_join_writes_unit_and_settings_with_which_the_agent_registers(
    api: Api, machine: Machine
) -> None:
    token = await invite(api)
    output = await machine.join("--token", token)
    assert "joined as" in output and "ok       clock skew: the clocks agree" in output
    assert token not in output
    places = machine.places
    credential = places.credential.read_text().strip()
    assert credential not in output
    for file in (places.credential, places.record, places.environment):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert token not in file.read_text()
    unit = places.unit.read_text()
    assert f"run --state {places.state}" in unit and "NoNewPrivileges=yes" in unit

    words = [sys.executable, "-m", "bai_services.agent", "run", "--state", str(places.state)]
    agent = await asyncio.create_subprocess_exec(*words)
    admin = await api.client("admin")

    async def is_alive() -> bool:
        return bool((await admin.get("/agents", id=AGENT_ID, status="ALIVE"))["total"])

    await wait_until_async(is_alive, 30, "the agent to register")
    # The agent has its own credential, and simulates no devices.
    assert (await admin.get(f"/agents/{AGENT_ID}"))["devices"] == []
    agent.terminate()
    assert await agent.wait() == 0


async def test_second_join_changes_nothing_and_repairs_what_is_missing(
    api: Api, machine: Machine
) -> None:
    token = await invite(api)
    await machine.join("--token", token)
    places = machine.places
    files = (places.credential, places.unit, places.record)
    before = {file: file.read_text() for file in files}
    places.environment.write_text(places.environment.read_text() + "BAI_AGENT_CPU=2\n")
    places.unit.unlink()
    output = await machine.join()
    assert {file: file.read_text() for file in files} == before
    assert read_environment(places.state)["BAI_AGENT_CPU"] == "2"
    output = await machine.join()
    assert f"unchanged: {places.unit}" in output
    assert (await (await api.client("admin")).get("/agent-invitations"))["total"] == 1


def test_local_address_is_that_of_the_route_to_another_machine() -> None:
    assert local_address("http://127.0.0.1:8091/services/bai") == ""
    assert local_address("https://no-such-name.invalid/") == ""
    # Use an address for documentation (RFC 5737): the function only determines the route to it, and
    # sends nothing.
    assert local_address("https://203.0.113.7/services/bai") != "203.0.113.7"


async def test_join_is_completed_after_an_interruption(api: Api, machine: Machine) -> None:
    token = await invite(api)
    await machine.join("--token", token)
    # The response of the manager was lost: only the credential is stored.
    for file in (machine.places.record, machine.places.environment, machine.places.unit):
        file.unlink()
    await machine.join("--token", token)
    places = machine.places
    assert all(file.exists() for file in (places.record, places.environment, places.unit))
    (invitation,) = (await (await api.client("admin")).get("/agent-invitations"))["items"]
    assert invitation["used_at"] is not None


async def test_used_expired_and_foreign_tokens_are_refused(
    api: Api, machine: Machine, tmp_path: Path
) -> None:
    used = await invite(api)
    await machine.join("--token", used)
    expired = await invite(api, valid_minutes=1)
    api.world.clock.advance(minutes=1)
    other = Machine(api, tmp_path / "other")
    for token in (used, expired):
        with pytest.raises(Forbidden, match="has expired or was used"):
            await other.join("--token", token, "--id", "other")
    with pytest.raises(InvalidRequest, match="bai admin agent invite"):
        await other.join("--id", "other")
    token = await invite(api)
    with pytest.raises(Forbidden, match="for the resource group default"):
        await other.join("--token", token, "--id", "other", "--resource-group", "gpu")
    assert not other.places.unit.exists()
    with pytest.raises(Conflict, match="bai-agent leave first"):
        await machine.join("--token", token, "--id", "other")


async def test_leave_reverts_join_and_is_idempotent(api: Api, machine: Machine) -> None:
    await machine.join("--token", await invite(api))
    await machine.leave()
    assert list(machine.places.units.iterdir()) == []
    assert list(machine.places.state.iterdir()) == []
    admin = await api.client("admin")
    assert (await admin.get("/agents"))["total"] == 0
    assert await machine.leave() == "this machine has not joined"
    # The machine can join again, with another invitation.
    await machine.join("--token", await invite(api))


async def test_hub_with_a_certificate_authority_of_its_own(
    api: Api, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "")  # restored at the end of the test
    certificate = write_certificate(tmp_path / "tls", "localhost")
    token = await invite(api)
    machine.places.units.rmdir()  # a machine without systemd
    with forwarding(urlsplit(api.url).port or 0, certificate) as proxy:
        machine.url = f"{proxy.url}/services/bai"
        with pytest.raises(Conflict) as caught:
            await machine.join("--token", token)
        problems = [line for line in str(caught.value).splitlines() if line.startswith("error")]
        assert problems == [
            "error    certificate: the hub's certificate is not accepted: self-signed certificate"
        ]
        await machine.join("--token", token, "--ca-file", str(certificate[0]))
        assert read_environment(machine.places.state)["SSL_CERT_FILE"] == str(certificate[0])
        # Another process: the settings file names the authority.
        monkeypatch.setenv("SSL_CERT_FILE", "")
        await machine.leave()
    assert not machine.places.record.exists()


async def test_failed_check_prevents_the_join(api: Api, machine: Machine, tmp_path: Path) -> None:
    host = f"unix://{tmp_path}/docker.sock"
    token = await invite(api)
    with pytest.raises(Conflict, match="(?s)error    docker: the engine.*remedy: start Docker"):
        await machine.join("--token", token, "--docker-host", host, engine="docker")
    assert not machine.places.state.exists()
    machine.url = "http://127.0.0.1:9/services/bai"
    with pytest.raises(Conflict, match="error    manager:"):
        await machine.join("--token", token)
    items = (await (await api.client("admin")).get("/agent-invitations"))["items"]
    assert [one["used_at"] for one in items] == [None]


def test_manager_url_is_derived_from_the_url_of_a_hub_or_manager() -> None:
    assert manager_url("https://hub.example.org/") == "https://hub.example.org/services/bai"
    assert manager_url("http://h:81/x/services/bai") == "http://h:81/x/services/bai"
    for text in ("hub.example.org", "ftp://h", "https://a@h", "https://h/?x"):
        with pytest.raises(InvalidRequest, match="is not a URL"):
            manager_url(text)


def test_malformed_settings_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "agent.env").write_text("# comment\n\nA=b=c\n")
    assert read_environment(tmp_path) == {"A": "b=c"}
    (tmp_path / "agent.env").write_text("a b\n")
    with pytest.raises(InvalidRequest, match="line 1"):
        read_environment(tmp_path)
    with pytest.raises(InvalidRequest, match="join first"):
        read_environment(tmp_path / "none")
