"""The real command against a real manager with the demo in it, behind a real server."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bai_services.cli.main import main
from tests.manager.conftest import _filed_sqlite, _migrated_sqlite, clock, manager, world
from tests.testbed.agent_voice import AgentVoice
from tests.testbed.manager import Api, World, serving, sqlite_copy

__all__ = ["_filed_sqlite", "_migrated_sqlite", "clock", "manager", "world"]


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        """The one JSON document on standard output of a command that was done."""
        assert (self.code, self.stderr) == (0, "")
        return json.loads(self.stdout)

    @property
    def error(self) -> Any:
        """The one JSON document on standard error of a command that failed."""
        assert (self.code == 0, self.stdout) == (False, "")
        return json.loads(self.stderr)


@pytest.fixture
def database_url(tmp_path: Path, _filed_sqlite: Path) -> str:
    # What the command does is the same on every database; tests/api runs on both.
    return sqlite_copy(_filed_sqlite, tmp_path)


@pytest.fixture
async def api(world: World) -> AsyncIterator[Api]:
    async with serving(world) as served:
        yield served


@pytest.fixture
async def agent(api: Api) -> AsyncIterator[AgentVoice]:
    """An agent that has said hello, beside running loops."""
    voice = AgentVoice(api.agent)
    await voice.beat()
    await api.world.manager.start()
    yield voice
    await api.world.manager.session_parts.stop()
    assert await api.world.manager.ledger.audit() == []


Bai = Callable[..., Awaitable[Done]]


@pytest.fixture
def hub_url(api: Api) -> str:
    return api.url.removesuffix("/services/bai")


@pytest.fixture
def bai(api: Api, hub_url: str, tmp_path: Path) -> Bai:
    """Run ``bai`` with arguments: by whom (None: with what is saved), with what on stdin."""

    async def run(
        *arguments: object, by: str | None = "admin", stdin: str = "", **more: str
    ) -> Done:
        environ: dict[str, str | None] = {k: None for k in os.environ if k.startswith("BAI_")}
        environ["BAI_CONFIG_DIR"] = str(tmp_path / "config")
        if by is not None:
            keys = api.world.keys[by]
            environ["BAI_URL"] = hub_url
            environ["BAI_ACCESS_KEY"] = keys.access_key
            environ["BAI_SECRET_KEY"] = keys.secret_key
        # In a thread with a loop of its own: the manager runs in this one.
        result = await asyncio.to_thread(
            CliRunner().invoke,
            main,
            [str(argument) for argument in arguments],
            input=stdin,
            env=environ | more,
        )
        done = Done(result.exit_code, result.stdout, result.stderr)
        for keys in api.world.keys.values():
            assert keys.secret_key not in done.stdout + done.stderr
        return done

    return run
