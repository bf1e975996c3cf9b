"""MLflow in a session, through the proxy, for its owner only."""

from __future__ import annotations

import pytest

from tests.hub import RunningHub, running_session

pytestmark = [pytest.mark.e2e, pytest.mark.docker]


def test_mlflow_answers_its_owner_and_nobody_else(docker_hub: RunningHub) -> None:
    hub = docker_hub
    session = running_session(hub, "user", resources={"cpu": "1", "mem": "2g"})
    with hub.rest("user") as rest, hub.rest("user2") as other, hub.client() as nobody:
        mine = hub.jupyter(rest, session["url"])
        # Its own start, with the migrations of its database, is waited for by the first request.
        health = mine.get("mlflow/health", timeout=240)
        assert (health.status_code, health.text) == (200, "OK"), health.text
        assert "<title>MLflow</title>" in mine.get("mlflow/").text
        made = mine.post("mlflow/api/2.0/mlflow/experiments/create", json={"name": "first"})
        assert made.status_code == 200, made.text
        found = mine.get("mlflow/api/2.0/mlflow/experiments/get-by-name?experiment_name=first")
        assert found.json()["experiment"]["experiment_id"] == made.json()["experiment_id"]
        assert hub.jupyter(other, session["url"]).get("mlflow/health").status_code == 403
        assert nobody.get(f"{session['url']}mlflow/health").status_code in (302, 403)
