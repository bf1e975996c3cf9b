"""Imports of models into model stores over REST."""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from shutil import disk_usage
from typing import Any

import pytest

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
from bai_services.manager.imports.import_loop import MAX_CONCURRENT, MAX_CONCURRENT_PER_USER
from bai_services.manager.imports.transfer import Transfer
from tests.manager.test_full_disk import MIB, mounted_disk
from tests.testbed.manager import SUPERADMIN, Api
from tests.testbed.model_hub import COMMIT, ModelHub, serve_endless_head

from .conftest import LARGE


async def run_imports(api: Api) -> None:
    await api.world.manager.models.runner.step()
    await api.world.manager.models.runner.wait()
    await api.world.manager.models.refresher.step()


async def test_model_is_imported(api: Api, importer: Client, user: Client, hub: ModelHub) -> None:
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
        slow = (await user.get("/model-imports"))["items"]
        statuses = Counter(one["status"] for one in slow)
        assert statuses == {
            "running": MAX_CONCURRENT_PER_USER, "queued": MAX_CONCURRENT - MAX_CONCURRENT_PER_USER,
        }  # fmt: skip
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


async def test_single_file_is_imported(api: Api, importer: Client, hub: ModelHub) -> None:
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


@pytest.mark.both_databases
async def test_retry_without_the_approved_folder_needs_an_approval(
    api: Api, importer: Client, user: Client, hub: ModelHub
) -> None:
    hub.wrong = {"w/model.bin"}
    made = await user.post("/model-imports", {"repository": "org/tiny"})
    path = f"/model-imports/{made['id']}"
    await importer.post(f"{path}/approval", {})
    failed = await ended(api, user, made)
    assert (failed["status"], failed["folder_id"]) == ("failed", None)
    again = await user.post(f"{path}/retry", {})
    assert (again["status"], again["folder_id"], again["problem"]) == ("requested", None, "")
    await run_imports(api)
    assert (await importer.get("/vfolders", project="models"))["items"] == []
    # A retry by an administrator needs no approval, nor does a retry by the user if the policy
    # permits member imports.
    await importer.post(f"{path}/approval", {})
    assert (await ended(api, user, made))["status"] == "failed"
    assert (await importer.post(f"{path}/retry", {}))["status"] == "queued"
    assert (await ended(api, user, made))["status"] == "failed"
    await importer.patch("/project-policies/default", {"allows_member_imports": True})
    hub.wrong = set()
    assert (await user.post(f"{path}/retry", {}))["status"] == "queued"
    assert (await ended(api, user, made))["status"] == "done"


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


async def test_retry_does_not_replace_another_folder_with_the_same_name(
    api: Api, importer: Client, hub: ModelHub
) -> None:
    hub.wrong = {"w/model.bin"}
    made = await importer.post("/model-imports", {"repository": "org/tiny"})
    await ended(api, importer, made)
    await importer.post("/vfolders", {"name": "tiny", "project": "models"})
    with pytest.raises(AlreadyExists):
        await importer.post(f"/model-imports/{made['id']}/retry", {})
    assert (await importer.get(f"/model-imports/{made['id']}"))["status"] == "failed"


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

    # Simulate a manager that is killed after the first file.
    transfer.file_complete = stop_after_first  # type: ignore[method-assign]
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


def stored_files(api: Api) -> list[Path]:
    """Return all files of folders, including files that are not complete yet."""
    root = api.world.manager.settings.storage_root
    return [path for path in root.rglob("*") if path.is_file() and path.stat().st_size > 0]


async def ended(api: Api, client: Client, made: dict[str, Any]) -> dict[str, Any]:
    """Run an import to its end, and clean up."""
    await run_imports(api)
    await api.world.manager.models.runner.step()
    await api.world.manager.folders.vfolders.wait_for_tasks()
    return dict(await client.get(f"/model-imports/{made['id']}"))


@pytest.mark.parametrize(
    "damage, code, problem",
    [
        ({"failures": [403]}, "source-refused", "access is refused (status 403)"),
        ({"repository": "org/b"}, "source-not-found", "there is no such model, revision or file"),
        ({"wrong": {"w/model.bin"}}, "source-checksum", "w/model.bin does not match its checksum"),
    ],
)
@pytest.mark.both_databases
async def test_failed_import_has_a_reason_and_leaves_nothing(
    api: Api,
    importer: Client,
    hub: ModelHub,
    damage: dict[str, Any],
    code: str,
    problem: str,
) -> None:
    before = {name: getattr(hub, name) for name in damage}
    vars(hub).update(copy.deepcopy(damage))
    empty = stored_files(api)
    failed = await ended(
        api, importer, await importer.post("/model-imports", {"repository": "org/tiny"})
    )
    assert failed["status"] == "failed", failed
    assert failed["problem_coded"]["code"] == code
    assert failed["problem"].startswith(problem)
    assert (failed["folder_id"], failed["kept_until"]) == (None, None)
    assert stored_files(api) == empty
    assert (await importer.get("/vfolders", project="models"))["items"] == []
    entries = (await importer.get("/audit-log", action="vfolder.purge"))["items"]
    assert (entries[0]["actor"], entries[0]["details"]["name"]) == ("manager", "tiny")
    vars(hub).update(before)
    again = await importer.post(f"/model-imports/{failed['id']}/retry", {})
    assert (again["status"], again["problem_coded"]) == ("queued", None)
    done = await ended(api, importer, again)
    assert (done["status"], done["files"]) == ("done", 3)


async def test_interrupted_import_keeps_its_complete_files_for_a_day(
    api: Api, importer: Client, user: Client, hub: ModelHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bai_services.manager.models.hub_client.MAX_ATTEMPTS", 1)
    hub.cut_after = [1000, 1000, 100_000, 0]
    made = await importer.post("/model-imports", {"repository": "org/tiny"})
    failed = await ended(api, importer, made)
    assert failed["problem"] == (
        "w/model.bin: the connection was closed before the end of the file"
    )
    assert failed["kept_until"] is not None
    # An incomplete model is neither shown nor deployed.
    assert (await user.get("/models"))["items"] == []
    with pytest.raises(NotFound):
        await user.post("/models/tiny/deployment", {"variant": "vllm"})
    assert (await importer.get("/vfolders", project="models"))["total"] == 1
    api.world.clock.advance(hours=24, seconds=1)
    deleted = await ended(api, importer, made)
    assert (deleted["status"], deleted["folder_id"]) == ("failed", None)
    assert (await importer.get("/vfolders", project="models"))["items"] == []
    done = await ended(api, importer, await importer.post(f"/model-imports/{made['id']}/retry", {}))
    assert (done["status"], done["kept_until"]) == ("done", None)
    assert (await user.get("/models"))["total"] == 1


@pytest.mark.both_databases
async def test_cancelled_import_ends_and_leaves_nothing(
    api: Api, importer: Client, hub: ModelHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bai_services.manager.imports.import_loop.REPORT_SECONDS", 0.01)
    hub.is_slow = True
    empty = stored_files(api)
    made = await importer.post("/model-imports", {"repository": "org/tiny"})
    runner = api.world.manager.models.runner
    await runner.step()
    async with asyncio.timeout(60):
        while not hub.requests["cdn"] or len(stored_files(api)) == len(empty):
            await importer.get(f"/model-imports/{made['id']}")
        cancelled = await importer.delete(f"/model-imports/{made['id']}")
        await runner.wait()
    assert cancelled["status"] == "cancelled"
    await runner.step()
    await api.world.manager.folders.vfolders.wait_for_tasks()
    assert stored_files(api) == empty
    assert (await importer.get(f"/model-imports/{made['id']}"))["folder_id"] is None
    assert (await importer.get("/vfolders", project="models"))["items"] == []


async def test_folder_in_use_by_a_session_is_not_deleted(
    api: Api, importer: Client, user: Client, hub: ModelHub
) -> None:
    hub.wrong = {"w/model.bin"}
    made = await importer.post("/model-imports", {"repository": "org/tiny"})
    await run_imports(api)
    spec = {"name": "reader", "mounts": [{"vfolder": "tiny"}]}
    session = await user.post("/sessions", spec)
    failed = await ended(api, importer, made)
    assert failed["folder_id"] is not None
    await user.delete(f"/sessions/{session['id']}")
    failed = await ended(api, importer, made)
    assert failed["folder_id"] is None


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MiB for the folders of the manager."""
    path = tmp_path / "vfolders"
    path.mkdir(mode=0o700)
    with mounted_disk(path, 4):
        yield path


@pytest.mark.usefixtures("small_disk")
@pytest.mark.parametrize("is_filled_later", [False, True])
async def test_import_to_a_full_disk_frees_it(
    api: Api, importer: Client, hub: ModelHub, small_disk: Path, is_filled_later: bool
) -> None:
    filler = small_disk / "filler"
    free = disk_usage(small_disk).free
    hub.files["w/model.bin"] = LARGE * 12
    if is_filled_later:
        hub.before_content = lambda: filler.write_bytes(bytes(2 * MIB))
    else:
        filler.write_bytes(bytes(2 * MIB))
    made = await importer.post("/model-imports", {"repository": "org/tiny"})
    failed = await ended(api, importer, made)
    assert (failed["status"], failed["problem_coded"]["code"]) == ("failed", "import-storage-full")
    filler.unlink()
    assert disk_usage(small_disk).free >= free
    hub.before_content = None
    done = await ended(api, importer, await importer.post(f"/model-imports/{made['id']}/retry", {}))
    assert done["status"] == "done"
