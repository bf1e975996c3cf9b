"""Settings of the agent from environment and command line."""

from __future__ import annotations

import pytest

from bai_services.agent.app import AgentApp, DockerSettings


def test_command_line_overrides_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BAI_ENGINE", "docker")
    monkeypatch.setenv("BAI_AGENT_SIMULATED_GPUS", "5")
    monkeypatch.setenv("BAI_AGENT_ID", "from-environment")
    monkeypatch.setenv("DOCKER_HOST", "unix:///x.sock")
    monkeypatch.delenv("BAI_AGENT_ENGINE", raising=False)
    monkeypatch.delenv("BAI_AGENT_DOCKER_HOST", raising=False)
    app = AgentApp()
    app.initialize(["--id=from-line"])
    assert (app.engine, app.simulated_gpus, app.agent_id) == ("docker", 5, "from-line")
    settings = DockerSettings(parent=app)
    assert (settings.host, settings.hub_endpoint()) == ("unix:///x.sock", "unix:///x.sock")
