"""`bai model`."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bai_services.core.sessions.callbacks import AllowedTargets
from bai_services.manager.manager import Manager
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api, MovableClock, manager_on
from tests.testbed.model_hub import ModelHub, serve_model_hub

from .conftest import Bai
from .test_golden import compare, normalized

DEFINITION = """\
models:
- name: tiny
  service: {start_command: python3 server.py, port: 8000}
  metadata:
    title: Tiny
    version: "1.0"
    author: Ann
    description: A small model.
    task: text-generation
    framework: [pytorch]
    license: MIT
    min_resource: {cpu: "1", mem: 1g}
"""


@pytest.fixture
async def hub() -> AsyncIterator[ModelHub]:
    async with serve_model_hub(ModelHub({"config.json": b"{}"})) as hub:
        yield hub


@pytest.fixture
async def manager(
    database_url: str, tmp_path: Path, clock: MovableClock, hub: ModelHub
) -> AsyncIterator[Manager]:
    reach = AllowedTargets.parse("", "127.0.0.0/8")
    settings = {"model_hub_url": hub.url, "import_reach": reach}
    async with manager_on(database_url, tmp_path, clock, is_migrated=True, **settings) as made:
        await made.folders.vfolders.start()
        yield made


async def test_model_is_listed_cloned_deployed_and_imported(bai: Bai, api: Api) -> None:
    await FakeAgent(api.agent).beat()
    empty = await bai("model", "list", by="user")
    assert empty.stderr == "no models\n"
    admin = await api.client("admin")
    spec = {"name": "models", "domain": "default", "type": "model-store"}
    await admin.post("/projects", spec)
    await admin.put("/projects/models/members/user")
    folder = {"name": "tiny", "project": "models", "permission": "ro", "cloneable": True}
    key = (await admin.post("/vfolders", folder))["id"]
    files = {"model-definition.yaml": DEFINITION, "README.md": "# Tiny\n"}
    for path, text in files.items():
        query = {"path": path}
        await admin.call("PUT", f"/vfolders/{key}/content", query=query, content=text.encode())
    refreshed = await bai("model", "refresh", "tiny", by="user")
    assert refreshed.stdout == "model tiny refreshed\n"

    listed = await bai(
        "model", "list", "small", "--task", "text-generation", "--framework", "pytorch",
        "--license", "MIT", "--max-size", "1g", "--fits", by="user",
    )  # fmt: skip
    compare("model-list", listed.stdout)
    info = await bai("model", "info", "tiny", by="user")
    compare("model-info", normalized(re.sub(r"(?m)^(\w+_at +).*$", r"\1TIME", info.stdout)))
    readme = await bai("model", "info", "tiny", "--readme", by="user")
    assert readme.stdout == "# Tiny\n"
    assert "tiny" in (await bai("model", "versions", "tiny", by="user")).stdout

    cloned = await bai("model", "clone", "tiny", "mine", by="user")
    assert cloned.stdout == "model tiny cloned to folder mine\n"
    deployed = await bai("model", "deploy", "tiny", "-r", "cpu=1", "-r", "mem=1g", by="user")
    url = f"{api.url.partition('/services/')[0]}/services/bai-serve/tiny/"
    assert f"endpoint tiny created: {url}; see" in deployed.stdout

    requested = await bai("model", "import", "org/tiny", "--folder", "imported", by="user")
    assert "waits for the approval" in requested.stdout
    (item,) = (await bai("model", "imports", "--json", by="user")).document["items"]
    assert "requested" in (await bai("model", "imports", by="user")).stdout
    assert (await bai("model", "approve", item["id"], by="user")).code == 5
    approved = await bai("model", "approve", item["id"])
    assert approved.stdout == "import of org/tiny approved\n"
    api.world.manager.models.runner.start()
    done = await bai("model", "import", "org/tiny", "--folder", "second")
    assert done.stdout == "org/tiny imported into folder second\n"
    wrong = await bai("model", "import", "org/none", "--folder", "third")
    assert (wrong.code, "no such model" in wrong.stderr) == (1, True)
    imports = (await bai("model", "imports", "--json")).document["items"]
    (failed,) = [each["id"] for each in imports if each["status"] == "failed"]
    assert (await bai("model", "retry", failed)).stdout == "import of org/none restarted\n"
    waiting = await bai("model", "import", "org/tiny", "--folder", "fourth", "--json", by="user")
    cancelled = await bai("model", "cancel", waiting.document["id"], by="user")
    assert cancelled.stdout == "import of org/tiny cancelled\n"

    assert (await bai("model", "rm", "tiny", by="user")).code == 5
    removed = await bai("model", "rm", "tiny")
    assert removed.stdout.startswith("folder tiny moved to the trash; restore it with: bai vfolder")
    assert "tiny" not in (await bai("model", "list", "small", by="user")).stdout
    assert (await bai(*removed.stdout.split("bai ")[1].split())).code == 0
    assert "tiny" in (await bai("model", "list", "small", by="user")).stdout
