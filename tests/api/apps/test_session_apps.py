"""The apps of a session: built-in apps, apps in the label of its image, and requested ports."""

from __future__ import annotations

from tests.testbed.manager import Api, Client

LABELS = {"ai.backend.service-ports": "vscode:http:8180,triton:http:8000"}


async def test_interactive_session_has_built_in_apps_image_apps_and_port_apps(
    api: Api, user: Client
) -> None:
    admin = await api.client("admin")
    await admin.post("/images", {"name": "team/tools:1", "labels": LABELS})
    spec = {"name": "lab1", "image": "team/tools:1", "preopen_ports": [9000]}
    await user.post("/sessions", {**spec, "enqueue_only": True})
    apps = {app["name"]: app for app in (await user.get("/sessions/lab1/apps"))["items"]}
    assert list(apps) == [
        "jupyterlab",
        "terminal",
        "filebrowser",
        "vscode",
        "triton",
        "port-9000",
    ]
    assert apps["vscode"] == {
        "name": "vscode",
        "title": "VS Code",
        "category": "Development",
        "kind": "process",
        "path": "vscode/",
        "is_shareable": False,
        "port": None,
    }
    assert (apps["triton"]["kind"], apps["triton"]["path"]) == ("port", "proxy/8000/")
    assert (apps["triton"]["port"], apps["port-9000"]["port"]) == (8000, 9000)
    assert apps["port-9000"]["is_shareable"]


async def test_batch_session_has_no_apps(api: Api, user: Client) -> None:
    spec = {"name": "train", "type": "batch", "startup_command": "true", "enqueue_only": True}
    await user.post("/sessions", spec)
    assert (await user.get("/sessions/train/apps"))["items"] == []
