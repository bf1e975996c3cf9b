"""The settings of the Hub that its authenticator reports to the manager."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from jupyterhub.app import JupyterHub
from traitlets.config import Config

from bai_auth import settings_report
from bai_auth.authenticator import BaiAuthenticator
from bai_services.client import Token
from bai_services.service_client import ServiceClient
from bai_spawner.server import SessionServer
from tests.testbed.manager import HUB_TOKEN, Api


async def test_settings_of_hub_authenticator_spawner_and_engines_are_reported(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAI_HOME", str(tmp_path))
    monkeypatch.delenv("BAI_ONE_TIME_CODES", raising=False)
    secret = tmp_path / "hub-token"
    secret.write_text(HUB_TOKEN)
    provider = {"name": "campus", "client_secret_env": "CAMPUS_SECRET"}
    config = Config(
        {
            "JupyterHub": {"bind_url": "http://:8000", "spawner_class": SessionServer},
            "BaiAuthenticator": {"hub_token_file": str(secret), "openid_providers": [provider]},
            "SelfService": {"sign_up": True},
            "SessionServer": {"queue_grace_seconds": 5},
            "DockerEngine": {"pids_limit": 99},
        }
    )
    app = JupyterHub(config=config)
    authenticator = BaiAuthenticator(parent=app)
    settings = settings_report.hub_settings(app, [authenticator, authenticator.self_service])
    async with ServiceClient(api.url, Token(HUB_TOKEN)) as client:
        await settings_report.report(client, settings)
    monitor = await api.client("monitor")
    items = (await monitor.get("/component-settings", limit=500))["items"]
    shown = {each["name"]: (each["value"], each["origin"]) for each in items}
    assert shown["JupyterHub.bind_url"] == ("http://:8000", "file")
    assert shown["BaiAuthenticator.openid_providers"] == ('["campus"]', "file")
    assert shown["BaiAuthenticator.hub_token_file"] == (None, "file")
    assert shown["SelfService.sign_up"] == ("true", "file")
    assert shown["SessionServer.queue_grace_seconds"] == ("5", "file")
    assert shown["SessionServer.start_timeout"] == ("780", "default")
    assert shown["DockerEngine.pids_limit"] == ("99", "file")
    assert shown["BaiAuthenticator.one_time_codes"] == ("off", "default")
    assert shown["JupyterHub.oauth_token_expires_in"] == ("1209600", "default")
    assert shown["ProcessEngine.state_dir"] == (str(tmp_path), "environment")
    assert shown["ProcessEngine.isolation"] == ("auto", "default")
    assert HUB_TOKEN not in repr(items)


async def test_rejected_report_is_logged_and_not_repeated(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    async with ServiceClient(api.url, Token("wrong")) as client:
        await asyncio.wait_for(settings_report.report(client, []), 10)
    (record,) = [each for each in caplog.records if each.name == settings_report.log.name]
    assert "rejects the settings of the Hub" in record.getMessage()
