"""An endpoint on the process engine, called through its gateway: rollout, token, deletion."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from bai_services.system.ports import free_port
from tests.e2e.sessions import checked
from tests.hub import RunningHub
from tests.testbed.wait import wait_until

pytestmark = pytest.mark.e2e

NAME = "e2e-serving"
SERVER = "echo '{text}' > index.html; exec python3 -m http.server --bind 127.0.0.1 $PORT"
SMALL = {"resources": {"cpu": "1", "mem": "256m"}}


@pytest.mark.checklist("SRV-15")
def test_endpoint_serves_rolls_out_a_revision_and_ends(any_hub: RunningHub) -> None:
    settings = {
        "variant": "cmd",
        "command": SERVER.format(text="first"),
        "health": {"path": "/index.html"},
        "request": SMALL,
    }
    with any_hub.rest("user") as rest, httpx.Client(base_url=any_hub.url, timeout=30) as calls:
        checked(rest.post("/endpoints", json={"name": NAME, "settings": settings}), 201)
        token = checked(rest.post(f"/endpoints/{NAME}/tokens", json={"name": "test"}), 201)
        calls.headers["Authorization"] = f"Bearer {token['token']}"
        path = f"/services/bai-serve/{NAME}/index.html"
        anonymous = httpx.get(any_hub.url + path)
        assert anonymous.status_code == 401, anonymous.text
        wait_until(lambda: calls.get(path).status_code != 401, 10, "the token to be valid")
        wait_for_text(calls, path, "first")
        first = replica(any_hub)
        # Nobody reaches the replica without its secret.
        assert httpx.get(f"{first['url']}/index.html").status_code == 302
        changed = {"settings": {"command": SERVER.format(text="second")}}
        checked(rest.post(f"/endpoints/{NAME}/revisions", json=changed), 201)
        wait_for_text(calls, path, "second")
        checked(rest.delete(f"/endpoints/{NAME}/tokens/test"), 204)
        wait_until(lambda: calls.get(path).status_code == 401, 10, "the revocation")
        checked(rest.delete(f"/endpoints/{NAME}"), 200)
        is_deleted = lambda: rest.get(f"/endpoints/{NAME}").status_code == 404  # noqa: E731
        wait_until(is_deleted, 120, "the deletion")
        assert calls.get(path).status_code == 404
        status = checked(rest.get(f"/sessions/{first['id']}"), 200)["status"]
        assert status in ("TERMINATED", "ERROR"), status


def wait_for_text(calls: httpx.Client, path: str, text: str) -> None:
    """Call the endpoint until its replica responds with the text; no call may fail otherwise."""

    def responds() -> bool:
        response = calls.get(path)
        assert response.status_code in (200, 503), response.text
        return response.text.strip() == text

    wait_until(responds, 180, f"a replica that responds {text}")


def replica(hub: RunningHub) -> dict[str, Any]:
    """Return the only replica, as gateways know it."""
    token = (hub.home / "secrets" / "gateway-token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    table = checked(httpx.get(f"{hub.api}/gateway/routes", headers=headers), 200)
    (found,) = (each["replicas"] for each in table["endpoints"] if each["name"] == NAME)
    (only,) = found
    return dict(only)


def test_trials_explain_why_they_are_unhealthy(any_hub: RunningHub) -> None:
    """Three definitions are tried at the same time; their sessions end afterwards."""
    server = "exec python3 -m http.server --bind 127.0.0.1"
    commands = {
        "trial-command-not-found": "no-such-server --port $PORT",
        "trial-other-port": f"{server} {free_port()}",
        "trial-no-path": f"{server} $PORT",
    }
    with any_hub.rest("user") as rest:
        trials = {}
        for cause, command in commands.items():
            settings = {
                "variant": "cmd",
                "command": command,
                "health": {"path": "/missing", "start_seconds": 5},
                "request": SMALL,
            }
            made = checked(rest.post("/endpoint-trials", json={"settings": settings}), 201)
            trials[made["id"]] = cause
        for trial, cause in trials.items():
            read = lambda: checked(rest.get(f"/endpoint-trials/{trial}"), 200)  # noqa: B023, E731
            wait_until(lambda: read()["ended_at"], 180, "the end of the trial")  # noqa: B023
            found = read()
            assert (found["is_healthy"], found["state_coded"]["code"]) == (False, cause), found
            ended = lambda: checked(rest.get(f"/sessions/{trial}"), 200)["status"]  # noqa: B023, E731
            wait_until(lambda: ended() in ("TERMINATED", "ERROR"), 60, "its session")  # noqa: B023
