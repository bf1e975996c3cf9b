"""Model stores over REST: cards, filters, versions, clones, deployments and imports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.client import Client
from bai_services.core.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    InvalidRequest,
    InvalidTransition,
    NotFound,
    QuotaExceeded,
)
from bai_services.core.imports.lifecycle import IMPORTS_KEPT_FOR
from bai_services.core.listing import ListQuery
from bai_services.core.models.cards import CardContent
from bai_services.core.sessions.callbacks import AllowedTargets
from bai_services.db.models.cards import CardStore
from bai_services.db.sessions.requests import ProjectFacts
from bai_services.db.tables.folders import vfolders
from bai_services.db.tables.models import model_imports
from bai_services.manager.imports.import_loop import MAX_CONCURRENT
from bai_services.manager.imports.transfer import Transfer
from bai_services.manager.manager import Manager
from bai_services.manager.models import refresher as refresher_module
from bai_services.manager.sessions.requests.choices import choose_project
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import SUPERADMIN, Api, MovableClock, manager_on
from tests.testbed.model_hub import COMMIT, TOKEN, ModelHub, serve_endless_head, serve_model_hub

LARGE = bytes(range(256)) * 1024
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


@pytest.fixture
async def hub() -> AsyncIterator[ModelHub]:
    files = {"config.json": b"{}", "w/model.bin": LARGE, "README.md": b"# Tiny\n"}
    async with serve_model_hub(ModelHub(files, need_token=True)) as hub:
        hub.description = {"pipeline_tag": "text-generation"}
        yield hub


@pytest.fixture
async def manager(
    database_url: str, tmp_path: Path, clock: MovableClock, hub: ModelHub
) -> AsyncIterator[Manager]:
    reach = AllowedTargets.parse("", "127.0.0.0/8")
    settings = {"model_hub_url": hub.url, "model_hub_token": TOKEN, "import_reach": reach}
    async with manager_on(database_url, tmp_path, clock, is_migrated=True, **settings) as made:
        await made.folders.vfolders.start()
        yield made


@pytest.fixture
async def admin(api: Api) -> Client:
    """A superadmin, with a model store of which *user* is a member."""
    admin = await api.client("admin")
    store = {"name": "models", "domain": "default", "type": "model-store"}
    await admin.post("/projects", store)
    await admin.put("/projects/models/members/user", {})
    await FakeAgent(api.agent).beat()
    return admin


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
async def test_order_of_titles_and_sizes(api: Api, admin: Client, user: Client) -> None:
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


async def test_clone_and_deployment(api: Api, admin: Client, user: Client) -> None:
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


async def test_resources_of_a_deployment(api: Api, admin: Client, user: Client) -> None:
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


async def run_imports(api: Api) -> None:
    await api.world.manager.models.runner.step()
    await api.world.manager.models.runner.wait()
    await api.world.manager.models.refresher.step()


@pytest.fixture
async def importer(api: Api, admin: Client) -> AsyncIterator[Client]:
    api.world.manager.models.runner.start_threads()
    yield admin


async def test_import_of_a_model(api: Api, importer: Client, user: Client, hub: ModelHub) -> None:
    hub.cut_after = [100_000]
    body = {"repository": "org/tiny", "folder": "imported"}
    made = await importer.post("/model-imports", body)
    assert (made["status"], made["kind"], made["project"]) == ("queued", "huggingface", "models")
    await run_imports(api)
    done = await importer.get(f"/model-imports/{made['id']}")
    assert (done["status"], done["problem"], done["commit_id"]) == ("done", "", COMMIT)
    assert (done["files"], done["total_files"], done["bytes"]) == (3, 3, len(LARGE) + 9)
    card = await user.get("/models/imported")
    assert (card["title"], card["task"], card["version"]) == (
        "org/tiny", "text-generation", COMMIT[:12],
    )  # fmt: skip
    assert (await user.get("/models/imported/readme"))["text"] == "# Tiny\n"
    folder = await importer.get(f"/vfolders/{done['folder_id']}")
    assert (folder["mount_permission"], folder["cloneable"]) == ("ro", True)
    (stored,) = api.world.manager.settings.storage_root.glob(f"*/*/{folder['id']}/w/model.bin")
    assert stored.read_bytes() == LARGE
    with pytest.raises(InvalidTransition):
        await importer.delete(f"/model-imports/{made['id']}")
    with pytest.raises(AlreadyExists):
        await importer.post("/model-imports", body)
    # Ended imports are deleted after some time.
    api.world.clock.advance(seconds=IMPORTS_KEPT_FOR.total_seconds() + 1)
    await run_imports(api)
    assert (await api.world.manager.models.imports.page(SUPERADMIN, ListQuery())).items == []


@pytest.mark.both_databases
async def test_import_of_a_member_needs_an_approval(
    api: Api, importer: Client, user: Client
) -> None:
    made = await user.post("/model-imports", {"repository": "org/tiny"})
    assert (made["status"], made["folder_id"], made["owner"]) == ("requested", None, "user")
    await run_imports(api)
    with pytest.raises(Forbidden):
        await user.post(f"/model-imports/{made['id']}/approval", {})
    for other in ("user2", "acme-user"):
        with pytest.raises(NotFound):
            await (await api.client(other)).get(f"/model-imports/{made['id']}")
    domain_admin = await api.client("domain-admin")
    await domain_admin.post(f"/model-imports/{made['id']}/approval", {})
    await run_imports(api)
    with pytest.raises(Conflict):
        await domain_admin.post(f"/model-imports/{made['id']}/approval", {})
    assert (await user.get(f"/model-imports/{made['id']}"))["status"] == "done"
    second = await user.post("/model-imports", {"repository": "org/tiny", "folder": "b"})
    cancelled = await user.delete(f"/model-imports/{second['id']}")
    assert cancelled["status"] == "cancelled"
    with pytest.raises(NotFound):
        await (await api.client("user2")).post("/model-imports", {"repository": "org/tiny"})


async def test_policy_can_permit_imports_of_members(
    api: Api, importer: Client, user: Client
) -> None:
    await importer.patch("/project-policies/default", {"allows_member_imports": True})
    made = await user.post("/model-imports", {"repository": "org/tiny"})
    assert made["status"] == "queued"
    await run_imports(api)
    assert (await user.get(f"/model-imports/{made['id']}"))["status"] == "done"
    # The permission concerns only this import: the member cannot change the folder.
    with pytest.raises(Forbidden):
        await user.delete(f"/vfolders/{made['folder_id']}")
    with pytest.raises(AlreadyExists):
        await user.post("/model-imports", {"repository": "org/tiny"})


async def test_slow_imports_of_a_user_do_not_delay_others(
    api: Api, importer: Client, user: Client
) -> None:
    await importer.patch("/project-policies/default", {"allows_member_imports": True})
    async with serve_endless_head(is_silent=True) as (url, _), asyncio.timeout(60):
        for number in range(MAX_CONCURRENT):
            body = {"url": f"{url}/model.bin", "folder": f"slow-{number}"}
            await user.post("/model-imports", body)
        made = await importer.post("/model-imports", {"repository": "org/tiny"})
        await api.world.manager.models.runner.step()
        while (await importer.get(f"/model-imports/{made['id']}"))["status"] != "done":
            pass
        await api.world.manager.models.runner.stop()


async def test_import_does_not_begin_during_read_only_maintenance(
    api: Api, importer: Client, user: Client
) -> None:
    await importer.patch("/project-policies/default", {"allows_member_imports": True})
    made = await user.post("/model-imports", {"repository": "org/tiny"})
    period = await importer.post("/maintenances", {"mode": "read-only", "reason": "move"})
    await run_imports(api)
    assert (await user.get(f"/model-imports/{made['id']}"))["status"] == "queued"
    await importer.delete(f"/maintenances/{period['id']}")
    await run_imports(api)
    assert (await user.get(f"/model-imports/{made['id']}"))["status"] == "done"


async def test_import_above_the_limit_leaves_no_folder(
    api: Api, importer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bai_services.db.imports.store.MAX_OPEN_IMPORTS_PER_USER", 1)
    await importer.post("/model-imports", {"repository": "org/tiny", "folder": "first"})
    with pytest.raises(QuotaExceeded):
        await importer.post("/model-imports", {"repository": "org/tiny", "folder": "second"})
    page = await importer.get("/vfolders", project="models")
    assert [folder["name"] for folder in page["items"]] == ["first"]


async def test_import_of_an_inactive_user_waits(api: Api, importer: Client, user: Client) -> None:
    await importer.patch("/project-policies/default", {"allows_member_imports": True})
    made = await user.post("/model-imports", {"repository": "org/tiny"})
    await importer.patch("/users/user", {"status": "inactive"})
    await run_imports(api)
    assert (await importer.get(f"/model-imports/{made['id']}"))["status"] == "queued"
    await importer.patch("/users/user", {"status": "active"})
    await run_imports(api)
    assert (await importer.get(f"/model-imports/{made['id']}"))["status"] == "done"


async def test_import_of_a_file(api: Api, importer: Client, hub: ModelHub) -> None:
    body = {"url": f"{hub.url}/cdn/w/model.bin", "folder": "file", "sha256": "0" * 64}
    made = await importer.post("/model-imports", body)
    await run_imports(api)
    failed = await importer.get(f"/model-imports/{made['id']}")
    assert (failed["status"], "checksum" in failed["problem"]) == ("failed", True)
    del body["sha256"]
    made = await importer.post("/model-imports", {**body, "folder": "file2"})
    await run_imports(api)
    assert (await importer.get(f"/model-imports/{made['id']}"))["status"] == "done"
    assert (await importer.get("/models/file2"))["title"] == "file2"
    with pytest.raises(InvalidRequest, match="not a model store"):
        await importer.post("/model-imports", {**body, "project": "default"})


@pytest.mark.both_databases
async def test_failed_import_is_retried_by_its_user(
    api: Api, importer: Client, user: Client, hub: ModelHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    await importer.patch("/project-policies/default", {"allows_member_imports": True})
    hub.wrong = {"w/model.bin"}
    path = f"/model-imports/{(await user.post('/model-imports', {'repository': 'org/tiny'}))['id']}"
    with pytest.raises(InvalidTransition):
        await user.post(f"{path}/retry", {})
    await run_imports(api)
    assert (await user.get(path))["status"] == "failed"
    hub.wrong = set()
    with pytest.raises(NotFound):
        await (await api.client("user2")).post(f"{path}/retry", {})
    with pytest.raises(Forbidden):
        await (await api.client("monitor")).post(f"{path}/retry", {})
    with monkeypatch.context() as patch:
        patch.setattr("bai_services.db.imports.store.MAX_OPEN_IMPORTS_PER_USER", 0)
        with pytest.raises(QuotaExceeded):
            await user.post(f"{path}/retry", {})
    queued = await user.post(f"{path}/retry", {})
    assert (queued["status"], queued["problem"]) == ("queued", "")
    assert hub.requests["resolve"] == 3
    await run_imports(api)
    done = await user.get(path)
    assert (done["status"], done["files"]) == ("done", 3)
    # Complete files are not downloaded again.
    assert hub.requests["resolve"] == 4
    entries = (await importer.get("/audit-log", action="model-import.retry"))["items"]
    assert entries[0]["actor"] == "user"


async def test_user_who_has_left_the_store_cannot_retry_an_import(
    api: Api, importer: Client, user: Client, hub: ModelHub
) -> None:
    await importer.patch("/project-policies/default", {"allows_member_imports": True})
    hub.wrong = {"w/model.bin"}
    made = await user.post("/model-imports", {"repository": "org/tiny"})
    await run_imports(api)
    await importer.delete("/projects/models/members/user")
    with pytest.raises(NotFound):
        await user.post(f"/model-imports/{made['id']}/retry", {})
    async with api.world.manager.database.write() as tx:
        await tx.execute(sa.update(model_imports).values(vfolder_id=None))
    with pytest.raises(Conflict, match="was removed"):
        await importer.post(f"/model-imports/{made['id']}/retry", {})


async def test_monitors_read_readmes_but_no_other_files(api: Api, admin: Client) -> None:
    key = await make(api, admin, "tiny")
    await put(admin, key, "README.md", "# Tiny")
    await admin.post("/models/tiny/refresh", {})
    monitor = await api.client("monitor")
    assert (await monitor.get("/models/tiny/readme"))["text"] == "# Tiny"
    with pytest.raises(Forbidden, match="not read its files"):
        await monitor.call("GET", f"/vfolders/{key}/content", query={"path": "README.md"})


async def test_monitors_do_not_see_the_signature_of_a_url(api: Api, importer: Client) -> None:
    url = "https://example.org/model.bin"
    made = await importer.post("/model-imports", {"url": f"{url}?signature=secret"})
    assert made["source"] == f"{url}?signature=secret"
    monitor = await api.client("monitor")
    assert (await monitor.get(f"/model-imports/{made['id']}"))["source"] == url
    (listed,) = (await monitor.get("/model-imports"))["items"]
    assert listed["source"] == url
    with pytest.raises(InvalidRequest):
        await monitor.get("/model-imports", source__contains="signature=s")


async def test_interrupted_import_continues(
    api: Api, importer: Client, hub: ModelHub, tmp_path: Path
) -> None:
    made = await importer.post("/model-imports", {"repository": "org/tiny"})
    manager = api.world.manager
    (row,) = await manager.models.runner.open()
    # The manager stops during the download of the second file.
    hub.files["w/model.bin"] = LARGE
    hub.cut_after = []
    transfer = Transfer()
    received = transfer.file_complete

    def stop_after_first(size_bytes: int) -> None:
        received(size_bytes)
        transfer.cancel()

    transfer.file_complete = stop_after_first  # type: ignore[method-assign]  # a kill in between
    await manager.models.runner.run(row, transfer)
    interrupted = await importer.get(f"/model-imports/{made['id']}")
    assert interrupted["status"] == "running"
    assert hub.requests["resolve"] == 1
    await run_imports(api)
    done = await importer.get(f"/model-imports/{made['id']}")
    assert (done["status"], done["files"], done["bytes"]) == ("done", 3, len(LARGE) + 9)
    assert hub.requests["resolve"] == 3


async def test_quota_of_the_store_applies(api: Api, importer: Client) -> None:
    scope = f"project:{await api.world.project_id('default/models')}"
    await importer.put(f"/quota-scopes/local/{scope}", {"limit_bytes": 1000})
    made = await importer.post("/model-imports", {"repository": "org/tiny"})
    await run_imports(api)
    failed = await importer.get(f"/model-imports/{made['id']}")
    assert (failed["status"], "quota" in failed["problem"]) == ("failed", True)


def test_store_is_not_the_implicit_project_of_a_session() -> None:
    own = ProjectFacts("1", "vision", "default", True, None)
    store = ProjectFacts("2", "models", "default", True, None, is_store=True)
    assert choose_project([store, own], None) == own
    assert choose_project([store], None) == store
    assert choose_project([store, own], "models") == store
