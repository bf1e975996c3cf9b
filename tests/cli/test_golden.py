"""Terminal output at 80 and 140 columns, compared with the files in ``golden/``.

``GOLDEN=write`` in the environment regenerates the files; review the diff before committing.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bai_services.cli.sessions.waiting import live_text
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api, MovableClock
from tests.testbed.wait import wait_until_async

from .conftest import Bai
from .terminal import environment, run_all_on_terminal, run_on_terminal
from .test_sessions import bring_to_running

GOLDEN = Path(__file__).parent / "golden"
WIDTHS = (80, 140)
SCREENS = {
    "whoami": "whoami",
    "session-ls": "session ls --sort name",
    "session-ls-empty": "session ls --status error",
    "session-info-running": "session info my-lab",
    "session-info-pending": "session info big-job",
    "session-wait-running": "session wait my-lab",
    "vfolder-ls": "vfolder ls",
    "vfolder-ls-empty": "vfolder ls --trash",
    "vfolder-info": "vfolder info data",
    "image-list": "image list",
    "preset-list": "preset list",
    "template-ls-empty": "template ls",
    "session-shares-empty": "session shares",
    "ssh-key-ls-empty": "ssh-key ls",
    "sign-in-ls-empty": "sign-in ls",
    "env-ls-empty": "env ls",
    "dotfile-ls-empty": "dotfile ls",
    "usage-empty": "usage --slot cuda.device",
    "schedule-ls-empty": "schedule ls",
    "budget-empty": "budget",
    "model-list-empty": "model list",
    "service-list-empty": "service list",
    "service-variants": "service variants",
    "chat-ls-empty": "chat ls",
    "announcements-empty": "announcements",
    "notification-events": "notification events",
    "notification-settings": "notification settings",
    "notification-webhook-ls-empty": "notification webhook ls",
    "audit-empty": "audit --action session.read-log",
    "reservation-list-empty": "reservation list",
}


@pytest.fixture
def clock() -> MovableClock:
    """The manager's clock, ten minutes slow: the commands show a new session as ten minutes old."""
    moved = MovableClock()
    moved.now = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=10, seconds=15)
    return moved


def normalized(text: str) -> str:
    """Replace each value that differs between runs by a placeholder; remove control sequences."""
    text = text.replace("\r\n", "\n")
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)
    text = re.sub(r"\bAK[A-Z0-9]{18}\b", "AK" + "X" * 18, text)
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", text)
    text = re.sub(r"(?<=my-lab-)[0-9a-f]{6}\b", "xxxxxx", text)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    # The age is ten minutes plus the duration of the test.
    text = re.sub(r"\b1\d min\b", "1N min", text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def compare(name: str, text: str) -> None:
    """Assert that text equals the golden file ``name``; with ``GOLDEN=write``, write the file."""
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("GOLDEN") == "write":
        GOLDEN.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


async def wait_for_reason(bai: Bai, name: str) -> None:
    """Wait until the session has a queue position and a reason."""

    async def is_explained() -> Any:
        found = (await bai("session", "info", name, "--json", by="user")).document
        return found["reasons"] and found["queue_position"] is not None

    # The first placement in a process may JIT-compile the placement code.
    await wait_until_async(is_explained, 90, f"the reason why {name} is pending")


async def test_screens_and_tables_equal_the_golden_files(
    bai: Bai, api: Api, agent: FakeAgent, tmp_path: Path
) -> None:
    await api.world.manager.folders.vfolders.start()
    await bai("vfolder", "create", "data", by="user")
    await bai("vfolder", "share", "data", "user2", "--permission", "rw", by="user")
    await bai(
        "session", "create", "my-lab", "-r", "cpu=1", "-r", "mem=1g", "-r", "cuda.shares=0.25",
        "--mount", "data", by="user",
    )  # fmt: skip
    await bring_to_running(api, agent, "my-lab")
    await bai("session", "create", "big-job", "-r", "cpu=8", "-r", "mem=1g", by="user")
    await wait_for_reason(bai, "big-job")
    assert (await bai("vfolder", "usage", "data", "--fresh", by="user")).code == 0
    environ = environment(api, tmp_path, user="user")
    for columns in WIDTHS:
        commands = [words.split() for words in SCREENS.values()]
        screens = await asyncio.to_thread(run_all_on_terminal, commands, environ, columns)
        for name, drawn in zip(SCREENS, screens, strict=True):
            text = normalized(drawn)
            assert "error:" not in text
            for line in text.splitlines():
                # Only a line with a URL may be longer than the terminal, which wraps it.
                assert len(line) <= columns or "http://" in line, line
            compare(f"{name}-{columns}", text)
    ls = await asyncio.to_thread(
        run_on_terminal, ["session", "ls"], environ | {"NO_COLOR": "1"}, 80, pipes_stdout=False
    )
    colours = re.compile(r"\x1b\[[0-9;]*3[0-7]m")
    assert not colours.search(ls.drawn)
    info = ["session", "info", "my-lab"]
    plain = await asyncio.to_thread(
        run_on_terminal, info, environ | {"NO_COLOR": "1"}, 80, pipes_stdout=False
    )
    coloured = await asyncio.to_thread(run_on_terminal, info, environ, 80, pipes_stdout=False)
    piped = await asyncio.to_thread(run_on_terminal, info, environ, 80, pipes_stdout=True)
    assert (bool(colours.search(plain.drawn)), bool(colours.search(coloured.drawn))) == (
        False,
        True,
    )
    assert "\x1b" not in piped.stdout


async def test_live_status_line_shows_why_a_session_is_pending(
    bai: Bai, api: Api, agent: FakeAgent, tmp_path: Path
) -> None:
    for name in ("big1", "big2"):
        await bai("session", "create", name, "-r", "cpu=6", "-r", "mem=1g", by="user")
    await wait_for_reason(bai, "big2")
    words = ["session", "wait", "big2", "--timeout", "3"]
    environ = environment(api, tmp_path, user="user")
    shown = await asyncio.to_thread(run_on_terminal, words, environ, 80, pipes_stdout=True)
    assert (shown.code, shown.stdout) == (1, "")
    line = "position 1 in resource group default (all users) · needs cpu=6, at most 2 free on one"
    assert line in " ".join(shown.drawn.split())
    assert "sooner with: -r cpu=2" in shown.drawn
    assert "Waiting 0:0" in shown.drawn
    # The live line is erased at the end, and the cursor is visible again.
    assert shown.drawn.rfind("\x1b[?25h") > shown.drawn.rfind("\x1b[?25l")
    assert shown.drawn.rfind("\x1b[2K") > shown.drawn.rfind("Waiting 0:0")


PENDING = {
    "status": "PENDING", "resource_group": "default", "queue_position": 1,
    "reasons": [{
        "check": "resources", "passed": False, "message": "…",
        "shortages": [{"slot": "cpu", "asked": "2", "available": "1"}],
    }],
}  # fmt: skip
PULLING = {
    "status": "PREPARING", "resource_group": "default",
    "progress": {"message": "pulling the image", "percent": 43},
}  # fmt: skip


@pytest.mark.parametrize("columns", WIDTHS)
def test_live_status_line_fits_the_terminal_width(columns: int) -> None:
    waiting = live_text(PENDING, 12, ["-r cpu=1"], columns)
    remedies = live_text(PENDING, 12, ["-r cpu=1", "--preset cpu-small"], columns)
    starting = live_text(PULLING, 3725, [], columns)
    compare(f"live-{columns}", f"{waiting.plain}\n\n{remedies.plain}\n\n{starting.plain}\n")


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("path", ["image list"])
def test_help_equals_the_golden_file(path: str, columns: int) -> None:
    # Run a separate process. Click creates the help option of a command once per process, so its
    # names (``-h``, ``--help``) could depend on another test.
    words = [sys.executable, "-m", "bai_services.cli.main", *path.split(), "--help"]
    environ = {**os.environ, "COLUMNS": str(columns)}
    done = subprocess.run(words, env=environ, capture_output=True, text=True, check=True)
    compare(f"help-{path.replace(' ', '-')}-{columns}", done.stdout)
