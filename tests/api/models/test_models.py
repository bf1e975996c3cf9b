"""Model stores over REST: cards, filters, versions, clones, deployments and imports."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.client import Client
from bai_services.core.errors import (
    AlreadyExists,
    Forbidden,
    InvalidRequest,
    NotFound,
)
from bai_services.core.models.cards import CardContent
from bai_services.db.models.cards import CardStore
from bai_services.db.sessions.requests import ProjectFacts
from bai_services.db.tables.folders import vfolders
from bai_services.manager.models import refresher as refresher_module
from bai_services.manager.sessions.requests.choices import choose_project
from tests.testbed.manager import Api

DEFINITION = """\
models:
- name: {name}
  model_path: /models/weights
  service: {{start_command: "python3 server.py", port: 8000, health_check: {{enable: true}}}}
  metadata:
    title: {title}
    version: "{version}"
    task: {task}
    framework: [{framework}]
    license: MIT
    min_resource: {resources}
"""


async def put(client: Client, folder: str, path: str, text: str) -> None:
    await client.call(
        "PUT", f"/vfolders/{folder}/content", query={"path": path}, content=text.encode()
    )


async def make(
    api: Api,
    admin: Client,
    folder: str,
    *,
    name: str = "tiny",
    title: str = "Tiny",
    version: str = "1.0",
    task: str = "text-generation",
    framework: str = "pytorch",
    resources: str = '{cpu: "1", mem: 1g}',
) -> str:
    spec = {"name": folder, "project": "models", "usage_mode": "model", "permission": "ro"}
    made = await admin.post("/vfolders", {**spec, "cloneable": True})
    text = DEFINITION.format(
        name=name, title=title, version=version, task=task, framework=framework, resources=resources
    )
    await put(admin, made["id"], "model-definition.yaml", text)
    await api.world.manager.models.refresher.step()
    return str(made["id"])


async def folders(client: Client, **query: Any) -> list[str]:
    return [item["folder"] for item in (await client.get("/models", **query))["items"]]


async def test_uploads_make_a_card_that_lists_show(api: Api, admin: Client, user: Client) -> None:
    key = await make(api, admin, "tiny-1")
    await put(admin, key, "README.md", "---\ntags: [a]\n---\n# Tiny model\n")
    await api.world.manager.models.refresher.step()
    (card,) = (await user.get("/models"))["items"]
    assert (card["id"], card["folder"], card["project"]) == (key, "tiny-1", "models")
    assert (card["title"], card["version"], card["license"]) == ("Tiny", "1.0", "MIT")
    assert (card["frameworks"], card["min_resources"]) == (["pytorch"], {"cpu": "1", "mem": "1g"})
    assert (card["is_latest"], card["is_fitting"], card["has_command"]) == (True, True, True)
    before = card["size_bytes"]
    await put(admin, key, "weights.bin", "x" * 5000)
    await api.world.manager.models.refresher.step()
    assert (await user.get("/models/tiny-1"))["size_bytes"] == before + 5000
    assert (await user.get("/models/tiny-1/readme"))["text"] == "# Tiny model\n"
    # Other users see neither the model nor its folder.
    for other in ("user2", "acme-user"):
        client = await api.client(other)
        assert await folders(client) == []
        with pytest.raises(NotFound):
            await client.get(f"/models/{key}")
        with pytest.raises(NotFound):
            await client.post(f"/models/{key}/refresh", {})


@pytest.mark.both_databases
async def test_search_filters_and_sort(api: Api, admin: Client, user: Client) -> None:
    await make(api, admin, "tiny", title="Tiny")
    await make(api, admin, "vision", name="see", title="Vision", task="detection", framework="onnx")
    await make(api, admin, "huge", name="huge", title="Huge", resources="{cpu: 5000, mem: 9t}")
    assert await folders(user) == ["huge", "tiny", "vision"]
    assert await folders(user, sort="-created_at", text__contains="tect") == ["vision"]
    assert await folders(user, task="detection", license="MIT") == ["vision"]
    assert await folders(user, frameworks__contains=",onnx,") == ["vision"]
    assert await folders(user, size_bytes__lte=1) == []
    assert await folders(user, fits="true") == ["tiny", "vision"]
    assert await folders(user, fits="false") == ["huge"]
    assert (await user.get("/models", limit=1, offset=1))["total"] == 3
    with pytest.raises(InvalidRequest):
        await user.get("/models", fits="maybe")


@pytest.mark.both_databases
async def test_list_is_sorted_by_title_or_size(api: Api, admin: Client, user: Client) -> None:
    for name, title, size in (("a", "beta", 10), ("b", "Alpha", 9), ("c", "Gamma", None)):
        await make(api, admin, name, title=title)
        async with api.world.manager.database.write() as tx:
            changed = sa.update(vfolders).where(vfolders.c.name == name)
            await tx.execute(changed.values(used_bytes=size))
    assert await folders(user) == ["b", "a", "c"]
    assert await folders(user, sort="-title") == ["c", "a", "b"]
    assert await folders(user, sort="size_bytes") == ["c", "b", "a"]
    assert await folders(user, sort="-size_bytes") == ["a", "b", "c"]


async def test_wrong_definition_is_shown_with_its_line(
    api: Api, admin: Client, user: Client
) -> None:
    key = await make(api, admin, "tiny")
    await put(admin, key, "model-definition.yaml", "models:\n- name: a\n  prot: 1\n")
    await api.world.manager.models.refresher.step()
    card = await user.get("/models/tiny")
    assert ("'prot'" in card["problem"], card["problem_line"], card["title"]) == (True, 3, "tiny")
    with pytest.raises(InvalidRequest, match="line 3"):
        await user.post("/models/tiny/deployment", {})
    await admin.delete(f"/vfolders/{key}/content", path="model-definition.yaml")
    card = await user.post("/models/tiny/refresh", {})
    assert "no model-definition.yaml" in card["problem"]


async def test_folder_in_the_trash_has_no_definition(api: Api, admin: Client) -> None:
    key = await make(api, admin, "tiny")
    refresher = api.world.manager.models.refresher
    assert await refresher.definition(key) is not None
    await admin.delete(f"/vfolders/{key}")
    assert await refresher.definition(key) is None


async def test_changes_by_sessions_are_found_by_the_scan(
    api: Api, admin: Client, user: Client
) -> None:
    key = await make(api, admin, "tiny")
    (file,) = api.world.manager.settings.storage_root.glob(f"*/*/{key}/model-definition.yaml")
    text = file.read_text().replace("Tiny", "Changed")
    file.write_text(text)
    await api.world.manager.models.refresher.step()
    assert (await user.get("/models/tiny"))["title"] == "Changed"
    # A link to another file is not followed.
    file.unlink()
    file.symlink_to("/etc/hostname")
    await api.world.manager.models.refresher.step()
    assert "no model-definition.yaml" in (await user.get("/models/tiny"))["problem"]
    await admin.delete(f"/vfolders/{key}")
    assert await folders(user) == []


async def test_versions_are_models_with_the_same_name(
    api: Api, admin: Client, user: Client
) -> None:
    for number in ("1.9", "1.10", "1.2"):
        await make(api, admin, f"tiny-{number}", version=number)
    await make(api, admin, "other", name="other")
    found = (await user.get("/models/tiny-1.2/versions", sort="folder"))["items"]
    assert [(card["version"], card["is_latest"]) for card in found] == [
        ("1.10", True), ("1.2", False), ("1.9", False),
    ]  # fmt: skip
    assert await folders(user, is_latest="true", name="tiny") == ["tiny-1.10"]


@pytest.mark.both_databases
async def test_trashed_version_is_not_the_latest(api: Api, admin: Client, user: Client) -> None:
    await make(api, admin, "a", version="1.0")
    newer = await make(api, admin, "b", version="2.0")
    refresher = api.world.manager.models.refresher
    assert await folders(user, is_latest="true") == ["b"]
    await admin.delete(f"/vfolders/{newer}")
    await refresher.step()
    assert await folders(user, is_latest="true") == ["a"]
    await admin.post(f"/vfolders/{newer}/restore", {})
    await refresher.step()
    assert await folders(user, is_latest="true") == ["b"]


@pytest.mark.both_databases
async def test_versions_can_be_refreshed_at_the_same_time(
    api: Api, admin: Client, user: Client
) -> None:
    keys = [await make(api, admin, name, version=name) for name in ("1", "2", "3")]
    store = CardStore(api.world.manager.database)
    now, content = api.world.clock(), CardContent(name="tiny")
    await asyncio.gather(*(store.put(key, "", content, now) for key in keys * 10))
    assert len(await folders(user, is_latest="true")) == 1


async def test_frequent_changes_do_not_prevent_the_scan(
    api: Api, admin: Client, user: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await make(api, admin, "a")
    other = await make(api, admin, "b", name="other")
    (path,) = api.world.manager.settings.storage_root.glob(f"*/*/{key}")
    (path / "README.md").write_text("from a session")
    refresher = api.world.manager.models.refresher
    monkeypatch.setattr(refresher_module, "SCAN_SECONDS", 0.0)
    await put(admin, other, "README.md", "new")
    await refresher.step()
    assert (await user.get("/models/a/readme"))["text"] == "from a session"


async def test_folder_of_the_project_takes_precedence_over_a_model(
    api: Api, admin: Client, user: Client
) -> None:
    await make(api, admin, "data")
    own = await admin.post("/vfolders", {"name": "data", "project": "default"})
    request = {"project": "default", "mounts": [{"vfolder": "data"}]}
    session = await user.post("/sessions", {"name": "lab1", **request})
    assert [mount["vfolder_id"] for mount in session["mounts"]] == [own["id"]]


async def test_model_is_cloned_and_deployed(api: Api, admin: Client, user: Client) -> None:
    key = await make(api, admin, "tiny")
    clone = await user.post("/models/tiny/clone", {"name": "mine"})
    await api.world.manager.folders.vfolders.wait_for_tasks()
    clone = await user.get(f"/vfolders/{clone['id']}")
    assert (clone["status"], clone["usage_mode"], clone["is_owner"]) == ("ready", "model", True)
    made = await user.post("/models/tiny/deployment", {})
    assert (made["name"], made["project"]) == ("tiny", "default")
    (revision,) = (await user.get("/endpoints/tiny/revisions"))["items"]
    settings = revision["settings"]
    assert (settings["model_folder"], settings["model_path"], settings["port"]) == (
        key, "weights", 8000,
    )  # fmt: skip
    assert settings["request"]["preset"] == "cpu-small"
    # A replica mounts the folder of the store in a session of another project.
    for _ in range(2):
        await api.world.manager.serving.runner.step()
    (replica,) = (await user.get("/endpoints/tiny/replicas"))["items"]
    (mount,) = (await user.get(f"/sessions/{replica['id']}"))["mounts"]
    assert (mount["vfolder_id"], mount["permission"]) == (key, "ro")
    with pytest.raises(AlreadyExists):
        await user.post("/models/tiny/deployment", {})
    with pytest.raises(NotFound):
        await (await api.client("user2")).post("/models/tiny/deployment", {"name": "theirs"})


async def test_deployment_uses_the_smallest_sufficient_preset_unless_resources_are_given(
    api: Api, admin: Client, user: Client
) -> None:
    await make(api, admin, "odd", resources='{cpu: "3", mem: 3000m}')
    await admin.post("/presets", {"name": "fits", "resource_slots": {"cpu": "3", "mem": "3g"}})
    await admin.post("/presets", {"name": "large", "resource_slots": {"cpu": "4", "mem": "8g"}})

    async def request(name: str, **spec: Any) -> Any:
        await user.post("/models/odd/deployment", {"name": name, **spec})
        (revision,) = (await user.get(f"/endpoints/{name}/revisions"))["items"]
        return revision["settings"]["request"]

    assert (await request("first"))["preset"] == "fits"
    assert await request("second", preset="large") == {"preset": "large"}
    given = {"cpu": "2", "mem": "1g"}
    assert await request("third", resources=given) == {"resources": given}
    for preset in (await user.get("/presets"))["items"]:
        await admin.delete(f"/presets/{preset['id']}")
    found = (await request("fourth"))["resources"]
    assert found == {"cpu": "3", "mem": "3000m"}


async def test_definition_without_command_needs_a_variant(
    api: Api, admin: Client, user: Client
) -> None:
    key = await make(api, admin, "tiny")
    text = "models: [{name: tiny, model_path: /models/w.gguf}]"
    await put(admin, key, "model-definition.yaml", text)
    with pytest.raises(InvalidRequest, match="runtime variant"):
        await user.post("/models/tiny/deployment", {})
    await user.post("/models/tiny/deployment", {"variant": "llama-cpp"})
    (revision,) = (await user.get("/endpoints/tiny/revisions"))["items"]
    settings = revision["settings"]
    assert (settings["variant"], settings["model_path"]) == ("llama-cpp", "w.gguf")


async def test_monitors_read_readmes_but_no_other_files(api: Api, admin: Client) -> None:
    key = await make(api, admin, "tiny")
    await put(admin, key, "README.md", "# Tiny")
    await admin.post("/models/tiny/refresh", {})
    monitor = await api.client("monitor")
    assert (await monitor.get("/models/tiny/readme"))["text"] == "# Tiny"
    with pytest.raises(Forbidden, match="not read its files"):
        await monitor.call("GET", f"/vfolders/{key}/content", query={"path": "README.md"})


def test_store_is_not_the_implicit_project_of_a_session() -> None:
    own = ProjectFacts("1", "vision", "default", True, None)
    store = ProjectFacts("2", "models", "default", True, None, is_store=True)
    assert choose_project([store, own], None) == own
    assert choose_project([store], None) == store
    assert choose_project([store, own], "models") == store
