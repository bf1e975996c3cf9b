"""An endpoint on the process engine: its replica is started, checked, replaced and stopped."""

from __future__ import annotations

from itertools import count
from typing import Any

import httpx
import pytest

from tests.e2e.sessions import checked
from tests.hub import RunningHub
from tests.testbed.wait import wait_until

pytestmark = pytest.mark.e2e

SERVER = "echo '{text}' > index.html; exec python3 -m http.server --bind 127.0.0.1 $PORT"
SMALL = {"resources": {"cpu": "1", "mem": "256m"}}


def test_endpoint_serves_rolls_out_a_revision_and_ends(any_hub: RunningHub) -> None:
    settings = {
        "variant": "cmd",
        "command": SERVER.format(text="first"),
        "health": {"path": "/index.html"},
        "request": SMALL,
    }
    name = "e2e-serving"
    with any_hub.rest("user") as rest, gateway(any_hub) as routes:
        checked(rest.post("/endpoints", json={"name": name, "settings": settings}), 201)
        first = replica_with(routes, name, "first")
        # Nobody reaches the replica without its secret.
        denied = httpx.get(f"{first['url']}/index.html")
        assert denied.status_code == 302
        changed = {"settings": {"command": SERVER.format(text="second")}}
        checked(rest.post(f"/endpoints/{name}/revisions", json=changed), 201)
        second = replica_with(routes, name, "second")
        assert first["id"] != second["id"]
        checked(rest.delete(f"/endpoints/{name}"), 200)
        numbers = count()

        def is_deleted() -> bool:
            drained = [first["id"], second["id"]]
            report = {"gateway_id": "g", "report_id": str(next(numbers)), "drained": drained}
            checked(routes.post("/gateway/reports", json=report), 204)
            return bool(rest.get(f"/endpoints/{name}").status_code == 404)

        wait_until(is_deleted, 120, "the deletion")
        for each in (first, second):
            status = checked(rest.get(f"/sessions/{each['id']}"), 200)["status"]
            assert status in ("TERMINATED", "ERROR"), status


def gateway(hub: RunningHub) -> httpx.Client:
    """Return a client that acts as a gateway."""
    token = (hub.home / "secrets" / "gateway-token").read_text().strip()
    return httpx.Client(base_url=hub.api, headers={"Authorization": f"Bearer {token}"})


def replica_with(routes: httpx.Client, name: str, text: str) -> dict[str, Any]:
    """Wait for a replica that responds with a text to its gateways; return its route."""

    def find() -> dict[str, Any] | None:
        for endpoint in checked(routes.get("/gateway/routes"), 200)["endpoints"]:
            for each in endpoint["replicas"] if endpoint["name"] == name else ():
                headers = {"Authorization": f"token {each['secret']}"}
                response = httpx.get(f"{each['url']}/index.html", headers=headers)
                if response.text.strip() == text:
                    return dict(each)
        return None

    found: dict[str, Any] = wait_until(find, 180, f"a replica that responds {text}")
    return found
