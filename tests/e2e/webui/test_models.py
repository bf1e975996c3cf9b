"""The page of models: a model of a store is found, read, cloned and deployed."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.e2e.sessions import checked
from tests.hub import RunningHub
from tests.testbed.model_hub import ModelHub, serve_model_hub
from tests.testbed.wait import wait_until_async

from .conftest import Opener
from .data_page import Data
from .entities_page import Entities
from .test_every_page import violations_in_both_themes

if TYPE_CHECKING:
    import httpx

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

USER = "user2"
DEFINITION = """\
models:
- name: echo-{cpu}
  service: {{start_command: "exec python3 -m http.server $BAI_SERVICE_PORT", port: 8000}}
  metadata:
    title: Echo {tag}
    version: "1.2"
    author: Ann Author
    description: It answers with its input.
    task: echo
    framework: [python]
    label: [small]
    license: MIT
    min_resource: {{cpu: {cpu}, mem: 256m}}
"""


@contextmanager
def models(admin: httpx.Client, tag: str) -> Iterator[None]:
    """A store of which *user2* is a member, with one model and one that is too large."""
    spec = {"name": f"store-{tag}", "domain": "default", "type": "model-store"}
    store = checked(admin.post("/projects", json=spec), 201)["id"]
    checked(admin.put(f"/projects/{store}/members/{USER}"), 200, 201, 204)
    folders = []
    try:
        for name, cpu in ((f"echo-{tag}", "1"), (f"large-{tag}", "4000")):
            folder = {"name": name, "project": store, "permission": "ro", "cloneable": True}
            key = checked(admin.post("/vfolders", json=folder), 201)["id"]
            folders.append(key)
            path = f"/vfolders/{key}/content"
            text = DEFINITION.format(tag=tag if cpu == "1" else f"large {tag}", cpu=cpu)
            files = {"model-definition.yaml": text, "README.md": "# Use of the model\n<b>x</b>\n"}
            for file, content in files.items():
                checked(admin.put(path, params={"path": file}, content=content.encode()), 200, 201)
            checked(admin.post(f"/models/{key}/refresh", json={}), 200)
        yield
    finally:
        for key in folders:
            admin.delete(f"/vfolders/{key}")
            admin.post(f"/vfolders/{key}/purge")
        admin.delete(f"/projects/{store}/members/{USER}")
        admin.patch(f"/projects/{store}", json={"is_active": False})


@pytest.mark.checklist("MS-01", "MS-02", "MS-03", "MS-04")
async def test_model_is_found_cloned_and_deployed(
    hub: RunningHub, opened: Opener[Entities]
) -> None:
    tag = secrets.token_hex(3)
    with hub.rest("admin") as admin, hub.rest(USER) as rest, models(admin, tag):
        ui = await opened(Entities, USER, "/models")
        try:
            search = ui.page.get_by_placeholder("Search models")
            await search.fill("no such model")
            await search.press("Enter")
            await ui.page.get_by_text("No model matches the filters.").wait_for()
            await search.fill(tag)
            await search.press("Enter")
            large = ui.page.get_by_role("button", name=f"Echo large {tag}")
            await large.get_by_text("Too large").wait_for()
            await ui.filter_by("Within my quotas", "Yes")
            await large.wait_for(state="detached")
            tile = ui.page.get_by_role("button", name=f"Echo {tag}")
            for text in ("Ann Author", "echo", "MIT", "1.2"):
                await tile.get_by_text(text, exact=True).wait_for()
            await tile.click()
            readme = ui.drawer.get_by_role("region", name="README")
            await readme.get_by_role("heading", name="Use of the model").wait_for()
            assert "<b>x</b>" in await readme.inner_text()
            for text in ("Ann Author", "License", "MIT", "1.2", "python", "small"):
                await ui.drawer.get_by_text(text, exact=True).first.wait_for()
            await clone(ui, f"clone-{tag}")
            await ui.drawer.get_by_role("button", name="Deploy", exact=True).click()
            dialog = ui.page.get_by_role("dialog", name=f"Deploy Echo {tag}")
            await dialog.get_by_role("button", name="Deploy", exact=True).click()
            await ui.page.get_by_role("tab", name="Overview").wait_for()
            overview = ui.page.get_by_role("tabpanel", name="Overview")
            for text in (f"echo-{tag}", "cpu-small"):
                await overview.locator("code").get_by_text(text, exact=True).wait_for()
            (revision,) = checked(rest.get(f"/endpoints/echo-{tag}/revisions"), 200)["items"]
            assert revision["settings"]["request"]["preset"] == "cpu-small"
        finally:
            rest.delete(f"/endpoints/echo-{tag}")
            rest.delete(f"/vfolders/clone-{tag}")


@pytest.mark.checklist("DATA-09")
async def test_models_are_deleted_with_their_folders(hub: RunningHub, opened: Opener[Data]) -> None:
    tag = secrets.token_hex(3)
    with hub.rest("admin") as admin, models(admin, tag):
        ui = await opened(Data, "admin", f'/data?filters={{"name__contains":"{tag}"}}')
        await ui.page.get_by_role("checkbox", name="Select all folders").check()
        await ui.page.get_by_role("button", name="Move to trash (2)").click()
        await ui.dialog.get_by_text("These 2 models are removed").wait_for()
        await ui.dialog.get_by_text(f"Echo large {tag} 1.2").wait_for()
        await ui.answer("Cancel")

        await ui.open(f'/models?filters={{"text__contains":"{tag}"}}')
        model = ui.page.get_by_role("button", name=f"Echo {tag}")
        await model.click()
        await ui.dialog.get_by_role("button", name="Delete").click()
        await ui.dialog.get_by_text("This model is removed from the model store:").wait_for()
        await ui.dialog.get_by_text(f"Echo {tag} 1.2").wait_for()
        await ui.answer("Move to trash")
        await model.wait_for(state="detached")
        (left,) = checked(admin.get("/models", params={"text__contains": tag}), 200)["items"]
        assert left["title"] == f"Echo large {tag}"


async def clone(ui: Entities, name: str) -> None:
    """Clone the model in the drawer, and wait until its files are copied."""
    await ui.drawer.get_by_role("button", name="Clone", exact=True).click()
    await ui.fill(Name_of_the_new_folder=name)
    await ui.drawer.get_by_role("button", name="Clone", exact=True).click()
    await ui.drawer.get_by_role("link", name=name).wait_for()
    await ui.drawer.get_by_role("button", name="Close", exact=True).last.click()


@pytest.mark.checklist("MS-01")
async def test_imports_of_a_member_wait_for_an_approval(
    hub: RunningHub, opened: Opener[Entities]
) -> None:
    tag = secrets.token_hex(3)
    with hub.rest("admin") as admin, models(admin, tag):
        ui = await opened(Entities, USER, "/models?tab=imports")
        await ui.page.get_by_role("button", name="Import a model").click()
        await ui.fill(Model="not a name", Folder=f"import-{tag}")
        button = ui.drawer.get_by_role("button", name="Import a model")
        await button.click()
        await ui.drawer.get_by_text("is not the name of a model").wait_for()
        await ui.fill(Model="org/tiny")
        await button.click()
        row = ui.page.get_by_role("row").filter(has_text=f"import-{tag}")
        await row.get_by_text("Waiting for approval").wait_for()
        await row.get_by_role("button", name="Cancel").click()
        await row.get_by_text("Cancelled").wait_for()


@pytest.mark.checklist("MS-01")
async def test_failed_import_says_why_and_is_retried(
    hub: RunningHub, opened: Opener[Entities]
) -> None:
    tag = secrets.token_hex(3)
    name = f"import-{tag}"
    with hub.rest("admin") as admin, models(admin, tag):
        async with serve_model_hub(ModelHub({})) as source:
            url = f"{source.url}/org/tiny/resolve/main/{tag}.bin"
            body = {"url": url, "folder": name, "project": f"store-{tag}"}
            checked(admin.post("/model-imports", json=body), 202)
            ui = await opened(Entities, "admin", "/models?tab=imports")
            row = ui.page.get_by_role("row").filter(has_text=name)
            await row.get_by_text("there is no such model, revision or file").wait_for()
            assert await violations_in_both_themes(ui.page) == []
            in_korean = await opened(Entities, "admin", "/models?tab=imports", locale="ko-KR")
            korean = in_korean.page.get_by_role("row").filter(has_text=name)
            await korean.get_by_text("이름을 확인하고 다시 가져오세요").wait_for()

            async def is_deleted() -> bool:
                found = checked(admin.get("/vfolders", params={"name": name}), 200)
                return bool(found["total"] == 0)

            await wait_until_async(is_deleted, 30, "the deletion of the folder")
            source.files[f"{tag}.bin"] = b"weights"
            await row.get_by_role("button", name="Try again").click()
            await row.get_by_text("Done", exact=True).wait_for()
            card = checked(admin.get(f"/models/{name}"), 200)
            admin.delete(f"/vfolders/{card['id']}")
            admin.post(f"/vfolders/{card['id']}/purge")


@pytest.mark.checklist("MS-05")
async def test_administrator_publishes_a_model(hub: RunningHub, opened: Opener[Entities]) -> None:
    tag = secrets.token_hex(3)
    with hub.rest("admin") as admin, models(admin, tag):
        ui = await opened(Entities, "admin", "/models?form=publish")
        name = f"made-{tag}"
        stores = checked(admin.get("/projects", params={"type": "model-store"}), 200)["items"]
        try:
            if len(stores) > 1:
                await ui.choose("Model store", f"default/store-{tag}")
            await ui.fill(Name_of_the_new_folder=f"echo-{tag}", Title=f"Made {tag}")
            publish = ui.drawer.get_by_role("button", name="Publish")
            problem = ui.drawer.locator(".ant-form-item-explain-error")
            await ui.drawer.get_by_label("CPU cores, minimum").fill("one")
            await publish.click()
            await problem.filter(has_text="Enter an amount such as 1.").wait_for()
            await ui.drawer.get_by_label("CPU cores, minimum").fill("1")
            await ui.drawer.get_by_label("Port").fill("2000")
            await ui.drawer.get_by_label("Command").fill("exec python3 server.py")
            await publish.click()
            await problem.filter(has_text="the port 2000 is reserved").wait_for()
            await ui.drawer.get_by_label("Port").fill("8000")
            await publish.click()
            await problem.filter(has_text=f"echo-{tag}").wait_for()
            await ui.fill(Name_of_the_new_folder=name, README="# How to use it")
            await ui.drawer.locator("input[type=file]").set_input_files(
                [{"name": "weights.bin", "mimeType": "", "buffer": b"weights"}]
            )
            await publish.click()
            readme = ui.drawer.get_by_role("region", name="README")
            await readme.get_by_role("heading", name="How to use it").wait_for()
            card = checked(admin.get(f"/models/{name}"), 200)
            assert (card["title"], card["problem"]) == (f"Made {tag}", "")
            assert card["min_resources"] == {"cpu": "1"}
            weights = {"path": "weights.bin"}

            async def is_uploaded() -> bool:
                found = admin.get(f"/vfolders/{card['id']}/content", params=weights)
                return found.status_code == 200

            await wait_until_async(is_uploaded, 30, "the upload")
            await ui.drawer.get_by_role("button", name="Delete").click()
            await ui.confirm("Move to trash")
            await ui.drawer.wait_for(state="detached")
            assert admin.get(f"/models/{name}").status_code == 404
        finally:
            admin.delete(f"/vfolders/{name}")
