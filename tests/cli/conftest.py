"""Fixtures: run `bai` against a real manager with demo data behind a real HTTP server."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bai_services.cli.main import main
from tests.testbed.manager import Api


@dataclass(frozen=True, slots=True)
class CompletedCommand:
    """Exit code and output of a command."""

    code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        """The JSON document on standard output of a successful command."""
        assert (self.code, self.stderr) == (0, "")
        return json.loads(self.stdout)

    @property
    def error(self) -> Any:
        """The JSON document on standard error of a failed command."""
        assert (self.code == 0, self.stdout) == (False, "")
        return json.loads(self.stderr)


Bai = Callable[..., Awaitable[CompletedCommand]]


@pytest.fixture
def hub_url(api: Api) -> str:
    return api.url.removesuffix("/services/bai")


@pytest.fixture
def bai(api: Api, hub_url: str, tmp_path: Path) -> Bai:
    """Return a function that runs ``bai`` as the user ``by``.

    If ``by`` is None, ``bai`` uses the saved profile.
    """

    async def run(
        *arguments: object, by: str | None = "admin", stdin: str = "", **more: str
    ) -> CompletedCommand:
        environ: dict[str, str | None] = {k: None for k in os.environ if k.startswith("BAI_")}
        environ["BAI_CONFIG_DIR"] = str(tmp_path / "config")
        if by is not None:
            keys = api.world.keys[by]
            environ["BAI_URL"] = hub_url
            environ["BAI_ACCESS_KEY"] = keys.access_key
            environ["BAI_SECRET_KEY"] = keys.secret_key
        # Run the command in a thread, because it starts its own event loop.
        result = await asyncio.to_thread(
            CliRunner().invoke,
            main,
            [str(argument) for argument in arguments],
            input=stdin,
            env=environ | more,
        )
        done = CompletedCommand(result.exit_code, result.stdout, result.stderr)
        for keys in api.world.keys.values():
            assert keys.secret_key not in done.stdout + done.stderr
        return done

    return run
