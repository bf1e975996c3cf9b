"""MLflow in a session: the session's owner can open it through the proxy, other users cannot."""

from __future__ import annotations

import pytest

from tests.hub import RunningHub, running_session

pytestmark = [pytest.mark.e2e, pytest.mark.docker]


def test_mlflow_responds_only_to_the_owner_of_the_session(docker_hub: RunningHub) -> None:
    hub = docker_hub
    session = running_session(hub, "user", resources={"cpu": "1", "mem": "2g"})
    with hub.rest("user") as rest, hub.rest("user2") as other, hub.client() as nobody:
        mine = hub.jupyter(rest, session["url"])
        # The first request waits until MLflow has started and migrated its database.
        health = mine.get("mlflow/health", timeout=240)
        assert (health.status_code, health.text) == (200, "OK"), health.text
        assert "<title>MLflow</title>" in mine.get("mlflow/").text
        made = mine.post("mlflow/api/2.0/mlflow/experiments/create", json={"name": "first"})
        assert made.status_code == 200, made.text
        read = mine.get("mlflow/api/2.0/mlflow/experiments/get-by-name?experiment_name=first")
        assert read.json()["experiment"]["experiment_id"] == made.json()["experiment_id"]
        assert hub.jupyter(other, session["url"]).get("mlflow/health").status_code == 403
        denied = nobody.get(f"{session['url']}mlflow/health")
        is_sign_in = "/hub/" in denied.headers.get("Location", "")
        assert denied.status_code == 403 or is_sign_in, denied.status_code
