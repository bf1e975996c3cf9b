"""Outputs and metrics of runs, read from the folder of the pipeline."""

from __future__ import annotations

import pytest

from bai_services.client import Client
from bai_services.core.errors import Conflict, InvalidRequest, NotFound
from tests.testbed.manager import Api

from .test_pipelines import create

TASKS = "tasks:\n- {name: one, command: x, outputs: [model.txt, plots, none]}\n"


async def test_outputs_and_metrics_are_read_from_the_folder(api: Api, user: Client) -> None:
    await api.world.manager.folders.start()
    made = await create(user, "results", TASKS)
    key = (await user.post("/pipelines/results/runs", {}))["id"]
    path = f"/pipeline-runs/{key}/results"
    found = await user.get(path)
    assert (found["folder"], found["directory"]) == (made["folder"], f"runs/{key}")
    assert {each["type"] for each in found["artifacts"]} == {None}
    assert (found["metrics"], found["metrics_problem"]) == ({}, "")

    async def put(name: str, content: bytes) -> None:
        target = f"/vfolders/{made['folder']}/content?path=runs/{key}/{name}"
        assert (await user.http.put(target, content=content)).status_code < 300

    await put("model.txt", b"12345")
    await put("plots/a.png", b"x")
    await put("metrics.json", b'{"loss": 0.25, "test": {"f1": 1}}')
    found = await user.get(path)
    assert [(each["path"].rpartition("/")[2], each["type"]) for each in found["artifacts"]] == [
        ("model.txt", "file"),
        ("plots", "directory"),
        ("none", None),
    ]
    assert found["artifacts"][0]["size"] == 5
    assert found["metrics"] == {"loss": 0.25, "test.f1": 1.0}
    await put("metrics.json", b"[" * 70_000)
    assert "more than 65536 bytes" in (await user.get(path))["metrics_problem"]
    other = await api.client("user2")
    with pytest.raises(NotFound):
        await other.get(path)
    # After the purge of its folder, the run is still shown.
    await user.delete(f"/vfolders/{made['folder']}")
    await user.post(f"/vfolders/{made['folder']}/purge", {})
    await api.world.manager.folders.vfolders.wait_for_tasks()
    assert (await user.get(path))["folder"] is None


async def offer_apps(api: Api, service_ports: str) -> None:
    """Set the apps of the default image."""
    admin = await api.client("admin")
    (image,) = [each async for each in admin.items("/images")]
    labels = image["labels"] | {"ai.backend.service-ports": service_ports}
    await admin.patch(f"/images/{image['id']}", {"labels": labels})


async def test_apps_of_a_run_share_one_session_of_the_caller(api: Api, user: Client) -> None:
    await api.world.manager.folders.start()
    made = await create(user, "apps", TASKS)
    key = (await user.post("/pipelines/apps/runs", {}))["id"]
    path = f"/pipeline-runs/{key}/apps"
    opened = await user.post(path, {"app": "tensorboard"})
    assert (opened["path"], opened["is_new"]) == ("tensorboard/", True)
    session = await user.get(f"/sessions/{opened['session']}")
    (mount,) = session["mounts"]
    assert (mount["vfolder_id"], mount["path"]) == (made["folder"], "/pipeline")
    assert session["environ"] == {
        "BAI_TENSORBOARD_LOGDIR": f"/pipeline/runs/{key}",
        "BAI_MLFLOW_STORE": f"/pipeline/runs/{key}/mlflow",
    }
    # The demo image has no MLflow, so no session is created.
    with pytest.raises(Conflict, match="MLflow is not part of the image local/session:latest"):
        await user.post(path, {"app": "mlflow"})
    await offer_apps(api, "tensorboard:http:6006,mlflow:http:5000")
    again = await user.post(path, {"app": "mlflow"})
    assert again == {**opened, "path": "mlflow/", "is_new": False}
    await user.delete(f"/sessions/{opened['session']}")
    other = await user.post(path, {"app": "mlflow"})
    assert other["is_new"] and other["session"] != opened["session"]
    with pytest.raises(InvalidRequest):
        await user.post(path, {"app": "terminal"})
    stranger = await api.client("user2")
    with pytest.raises(NotFound):
        await stranger.post(path, {"app": "mlflow"})
    # An administrator sees the run, but cannot mount the folder.
    admin = await api.client("domain-admin")
    with pytest.raises(NotFound):
        await admin.post(path, {"app": "mlflow"})
