"""A model store, a hub, and a manager that imports from it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bai_services.client import Client
from bai_services.core.sessions.callbacks import AllowedTargets
from bai_services.manager.manager import Manager
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api, MovableClock, manager_on
from tests.testbed.model_hub import TOKEN, ModelHub, serve_model_hub

LARGE = bytes(range(256)) * 1024


@pytest.fixture
async def hub() -> AsyncIterator[ModelHub]:
    files = {"config.json": b"{}", "w/model.bin": LARGE, "README.md": b"# Tiny\n"}
    made = ModelHub(files, need_token=True, description={"pipeline_tag": "text-generation"})
    async with serve_model_hub(made) as hub:
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


@pytest.fixture
async def importer(api: Api, admin: Client) -> AsyncIterator[Client]:
    api.world.manager.models.runner.start_threads()
    yield admin
