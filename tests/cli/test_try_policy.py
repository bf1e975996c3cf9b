"""`bai admin group try-policy`: table, progress, JSON and errors."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from pathlib import Path

from tests.api.cluster.test_replays import history
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

from .conftest import Bai
from .terminal import environment, run_on_terminal
from .test_golden import compare

COMMAND = ("admin", "group", "try-policy")
COLUMNS = 80


async def test_terminal_shows_progress_and_then_the_table(
    bai: Bai, api: Api, agent: FakeAgent, tmp_path: Path
) -> None:
    await history(api, agent, await api.client("user"))
    since = (api.world.clock() - timedelta(hours=1)).isoformat()
    words = [*COMMAND, "default", "--backfill", "off", "--scheduler", "lifo", "--since", since]
    environ = environment(api, tmp_path, user="admin")
    shown = await asyncio.to_thread(run_on_terminal, words, environ, COLUMNS, pipes_stdout=False)
    assert shown.code == 0, shown.drawn
    assert "replaying" in shown.drawn and "━" in shown.drawn
    # The progress bar is erased at the end.
    _, _, result = shown.drawn.rpartition("\x1b[2K")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", result.replace("\r", ""))
    lines = [line.rstrip() for line in text.splitlines()]
    assert max(map(len, lines)) <= COLUMNS
    compare(f"try-policy-{COLUMNS}", "\n".join(lines).strip() + "\n")

    names = ("--scheduler", "drf", "--scheduler", "fifo", "--placement", "pack", "--json")
    document = (await bai(*COMMAND, "default", *names, "--since", since)).document
    assert document["replay"]["policies"] == ["drf / pack / reserving", "fifo / priced / reserving"]


async def test_errors_explain_invalid_values(bai: Bai) -> None:
    failed = await bai(*COMMAND, "default", "--since", "yesterday", "--json")
    assert "'yesterday' is neither a duration such as 7d nor a time" in failed.error["message"]
    failed = await bai(*COMMAND, "default", "--scheduler", "best", "--json")
    assert "'best' is not one of 'fifo', 'lifo'" in failed.error["message"]
    failed = await bai(*COMMAND, "default", "--since", "200d", "--json")
    assert "maximum of 92 days" in failed.error["message"]
    failed = await bai(*COMMAND, "nothing", "--json")
    assert "there is no resource group 'nothing'" in failed.error["message"]
