"""`bai announcements`, `bai admin announcement`, and the notice after a command."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.testbed.manager import Api

from .conftest import Bai
from .terminal import environment, run_on_terminal


async def test_announcement_is_written_shown_and_dismissed(bai: Bai) -> None:
    made = await bai(
        "admin", "announcement", "create", "--title", "New GPUs", "--text", "**H100**", "--json"
    )
    shown = await bai("announcements", by="user")
    assert "[info] New GPUs" in shown.stdout
    assert "**H100**" in shown.stdout
    changed = await bai(
        "admin", "announcement", "update", made.document["id"], "--level", "critical", "--json"
    )
    assert changed.document["level"] == "critical"
    done = await bai("announcements", "--dismiss", made.document["id"], by="user")
    assert done.code == 0
    assert (await bai("announcements", by="user")).stderr == "no announcements\n"
    assert "New GPUs" in (await bai("announcements", "--all", by="user")).stdout


async def test_notice_appears_once_and_only_on_a_terminal(
    bai: Bai, api: Api, tmp_path: Path
) -> None:
    await bai("admin", "announcement", "create", "--title", "New GPUs")
    environ = environment(api, tmp_path, user="user")

    async def notice(*, pipes_stdout: bool) -> bool:
        words = ["ssh-key", "ls"]
        done = await asyncio.to_thread(
            run_on_terminal, words, environ, 80, pipes_stdout=pipes_stdout
        )
        return "announcement: New GPUs" in done.drawn

    assert not await notice(pipes_stdout=True)
    assert [await notice(pipes_stdout=False) for _ in range(2)] == [True, False]
