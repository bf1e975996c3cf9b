"""Settings of the agent from environment and command line."""

from __future__ import annotations

import pytest

from bai_services.agent.app import AgentApp
from bai_services.agent.docker.settings import DockerSettings
from bai_services.core.errors import InvalidRequest


def test_command_line_overrides_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BAI_ENGINE", "docker")
    monkeypatch.setenv("BAI_AGENT_SIMULATED_GPUS", "5")
    monkeypatch.setenv("BAI_AGENT_ID", "from-environment")
    monkeypatch.setenv("DOCKER_HOST", "unix:///x.sock")
    monkeypatch.delenv("BAI_AGENT_ENGINE", raising=False)
    monkeypatch.delenv("BAI_AGENT_DOCKER_HOST", raising=False)
    monkeypatch.setenv("BAI_AGENT_TOKEN_FILE", "/secret/place")
    monkeypatch.setenv("BAI_MANAGER_URL", "http://hub:geheim@127.0.0.1:1/services/bai")
    app = AgentApp()
    app.initialize(["--id=from-line", "--AgentApp.masked_devices=a", "--AgentApp.masked_devices=b"])
    assert (app.engine, app.simulated_gpus, app.agent_id) == ("docker", 5, "from-line")
    settings = DockerSettings(parent=app)
    assert (settings.host, settings.hub_endpoint()) == ("unix:///x.sock", "unix:///x.sock")
    reported = {each.name: each for each in app.settings()}
    shown = {name: (each.value, each.default, each.origin) for name, each in reported.items()}
    assert shown["AgentApp.engine"] == ("docker", "process", "environment")
    assert shown["AgentApp.agent_id"] == ("from-line", "", "file")
    assert shown["AgentApp.masked_devices"] == ('["a", "b"]', "[]", "file")
    assert shown["AgentApp.simulated_gpus"] == ("5", "", "environment")
    assert shown["AgentApp.stop_grace_seconds"] == ("5", "5", "default")
    assert shown["AgentApp.token_file"] == (None, None, "environment")
    assert shown["AgentApp.manager_url"][0] == "http://…@127.0.0.1:1/services/bai"
    assert shown["DockerSettings.host"] == (
        "unix:///x.sock",
        "unix:///var/run/docker.sock",
        "environment",
    )
    assert {"DiskSettings.limit", "SharingSettings.mps_share"} < shown.keys()


@pytest.mark.parametrize("address", ["hub.example.org", "0.0.0.0", "fd00::5", "10.0.0.256"])
def test_published_address_must_be_an_ipv4_address_of_this_machine(address: str) -> None:
    with pytest.raises(InvalidRequest, match="BAI_AGENT_ADDRESS"):
        DockerSettings(address=address).published_address()


def test_clients_of_published_ports_are_networks() -> None:
    assert DockerSettings(clients="10.0.0.5").client_networks() is None  # no published ports
    published = DockerSettings(address="10.0.0.9", clients="10.0.0.5, 10.0.1.7/24")
    assert published.client_networks() == ("10.0.0.5/32", "10.0.1.0/24")
    # Without `clients`, the result is empty, which stands for the addresses of the Hub and the
    # manager.
    assert DockerSettings(address="10.0.0.9").client_networks() == ()
    for invalid in ("hub", "10.0.0.5:8000"):
        settings = DockerSettings(address="10.0.0.9", clients=invalid)
        with pytest.raises(InvalidRequest, match="BAI_AGENT_CLIENTS"):
            settings.client_networks()
