"""Sessions over REST: folders, apps, the queue and rejected requests."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.e2e.sessions import checked, start, stop
from tests.hub import RunningHub
from tests.testbed.wait import wait_until
from tests.testbed.websocket import open_websocket

pytestmark = pytest.mark.e2e


def test_files_in_a_folder_outlive_the_session(any_hub: RunningHub) -> None:
    rest = any_hub.rest("user")
    folder = checked(rest.post("/vfolders", json={"name": "journey"}), 201)
    upload = rest.put(f"/vfolders/{folder['id']}/content", params={"path": "in.txt"}, content=b"42")
    checked(upload, 200, 201, 204)

    mounts = [{"vfolder": "journey", "path": "/home/work/data", "permission": "rw"}]
    resources = {"cpu": "1", "mem": "1g", "cuda.shares": "0.25"}
    session = start(rest, "journey-one", mounts=mounts, resources=resources)
    amounts = {a["slot"]: a["amount"] for a in session["allocations"]}
    assert amounts == {"cpu": "1", "mem": "1g", "cuda.shares": "0.25"}
    assert [a["is_simulated"] for a in session["allocations"] if a["slot"] == "cuda.shares"] == [
        True
    ]

    jupyter = any_hub.jupyter(rest, session["url"])
    assert checked(jupyter.get("api/contents/data/in.txt"), 200)["content"] == "42"
    note = {"type": "file", "format": "text", "content": "made inside"}
    checked(jupyter.put("api/contents/data/out.txt", content=json.dumps(note)), 201)

    refused = rest.delete(f"/vfolders/{folder['id']}")
    assert checked(refused, 409)["error"] == "in-use"
    ended = stop(rest, session["id"])
    assert ended["status"] == "TERMINATED"
    assert "ServerApp" in rest.get(f"/sessions/{session['id']}/logs").text

    again = start(rest, "journey-two", mounts=mounts)
    jupyter = any_hub.jupyter(rest, again["url"])
    assert checked(jupyter.get("api/contents/data/out.txt"), 200)["content"] == "made inside"
    stop(rest, again["id"])
    download = rest.get(f"/vfolders/{folder['id']}/content", params={"path": "out.txt"})
    assert download.content == b"made inside"
    checked(rest.delete(f"/vfolders/{folder['id']}"), 204)


def test_the_hubs_server_record_is_removed_with_the_session(any_hub: RunningHub) -> None:
    rest = any_hub.rest("user")
    session = start(rest, "gone-soon")
    token = {"Authorization": rest.headers["Authorization"]}

    def servers() -> dict[str, Any]:
        answer = httpx.get(
            f"{any_hub.url}/hub/api/users/user",
            params={"include_stopped_servers": "1"},
            headers=token,
        )
        return dict(checked(answer, 200)["servers"])

    assert session["hub_server"] in servers()
    stop(rest, session["id"])
    wait_until(lambda: session["hub_server"] not in servers(), 20, "the removal of the record")


@pytest.mark.docker
async def test_vs_code_tensorboard_and_a_terminal_respond_through_the_hub(
    docker_hub: RunningHub,
) -> None:
    rest = docker_hub.rest("user")
    session = start(rest, "apps-one")
    jupyter = docker_hub.jupyter(rest, session["url"])
    assert "vscode" in jupyter.get("vscode/", follow_redirects=True).text.lower()
    assert "tensorboard" in jupyter.get("tensorboard/").text.lower()
    terminal = checked(jupyter.post("api/terminals"), 200, 201)["name"]
    address = f"{docker_hub.url}{session['url']}terminals/websocket/{terminal}"
    async with open_websocket(address, rest.headers["Authorization"]) as socket:
        await socket.write_message(json.dumps(["stdin", "echo $((6*7))-typed\r"]))
        screen = ""
        while "42-typed" not in screen:
            message = await socket.read_message()
            assert message is not None, screen
            kind, *content = json.loads(message)
            screen += content[0] if kind == "stdout" else ""
    stop(rest, session["id"])


def test_a_read_only_folder_cannot_be_written(any_hub: RunningHub) -> None:
    rest = any_hub.rest("user")
    folder = checked(rest.post("/vfolders", json={"name": "readonly"}), 201)
    mounts = [{"vfolder": "readonly", "path": "data", "permission": "ro"}]
    session = start(rest, "reader-one", mounts=mounts)
    jupyter = any_hub.jupyter(rest, session["url"])
    checked(jupyter.get("api/contents/data"), 200)
    note = {"type": "file", "format": "text", "content": "no"}
    answer = jupyter.put("api/contents/data/out.txt", content=json.dumps(note))
    assert answer.status_code >= 400, answer.text
    stop(rest, session["id"])
    checked(rest.delete(f"/vfolders/{folder['id']}"), 204)


def test_an_invited_user_writes_to_a_shared_folder(any_hub: RunningHub) -> None:
    owner, guest = any_hub.rest("user"), any_hub.rest("user2")
    folder = checked(owner.post("/vfolders", json={"name": "shared"}), 201)
    path = f"/vfolders/{folder['id']}/grants/user2"
    grant = checked(owner.put(path, json={"permission": "rw"}), 200, 201)
    checked(guest.post(f"/vfolder-invitations/{grant['invitation_id']}/accept"), 200)
    mounts = [{"vfolder": "shared", "path": "data", "permission": "rw"}]
    session = start(guest, "guest-one", mounts=mounts)
    note = {"type": "file", "format": "text", "content": "from the guest"}
    jupyter = any_hub.jupyter(guest, session["url"])
    checked(jupyter.put("api/contents/data/guest.txt", content=json.dumps(note)), 201)
    stop(guest, session["id"])
    read = owner.get(f"/vfolders/{folder['id']}/content", params={"path": "guest.txt"})
    assert read.content == b"from the guest"
    checked(owner.delete(f"/vfolders/{folder['id']}"), 204)


def test_a_pending_session_starts_when_resources_are_released(any_hub: RunningHub) -> None:
    """The agent has two simulated GPUs, so the third session that requests a GPU is pending."""
    rest = any_hub.rest("user")
    whole = {"cpu": "1", "mem": "512m", "cuda.device": "1"}
    first = start(rest, "whole-one", resources=whole)
    second = start(rest, "whole-two", resources=whole)
    body = {"name": "whole-three", "project": "default", "resources": whole}
    third = checked(rest.post("/sessions", json=body), 201)

    def reasons() -> list[dict[str, Any]]:
        return list(checked(rest.get(f"/sessions/{third['id']}"), 200)["reasons"])

    waiting = wait_until(reasons, 20, "a reason")
    assert "cuda" in json.dumps(waiting)
    stop(rest, first["id"])
    wait_until(
        lambda: checked(rest.get(f"/sessions/{third['id']}"), 200)["status"] == "RUNNING",
        60,
        "the start of the pending session",
    )
    for session in (second, third):
        stop(rest, session["id"])


@pytest.mark.parametrize(
    "fields, status, code",
    [
        pytest.param({"project": "nowhere"}, 404, "not-found", id="unknown project"),
        pytest.param({"image": "no/such:image"}, 404, "not-found", id="unknown image"),
        pytest.param({"mounts": [{"vfolder": "not-there"}]}, 404, "not-found", id="unknown folder"),
        pytest.param(
            {"resources": {"cuda.shares": "0.255"}},
            400,
            "invalid-request",
            id="share that is not a multiple of the step",
        ),
        pytest.param(
            {"resources": {"mem": "900t"}},
            409,
            "insufficient-resources",
            id="more memory than any agent has",
        ),
        pytest.param({"name": "x" * 65}, 400, "invalid-request", id="name too long"),
        pytest.param({"name": "../../etc"}, 400, "invalid-request", id="invalid characters"),
        pytest.param({"resource_group": "other"}, 404, "not-found", id="unknown resource group"),
    ],
)
def test_invalid_requests_are_rejected_and_create_no_session(
    hub: RunningHub, fields: dict[str, Any], status: int, code: str
) -> None:
    rest = hub.rest("user")
    body = {"name": "refused", "project": "default", **fields}
    answer = checked(rest.post("/sessions", json=body), status)
    assert answer["error"] == code
    left = checked(rest.get("/sessions", params={"name": body["name"]}), 200)
    assert left["total"] == 0
