"""Progress bars of `bai vfolder upload` and `download` on a pseudo-terminal."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest

from tests.testbed.manager import Api

from .terminal import environment, run_on_terminal

MIB = 2**20


@pytest.fixture(autouse=True)
async def storage(api: Api) -> None:
    await api.world.manager.folders.vfolders.start()


@pytest.fixture
def environ(api: Api, tmp_path: Path) -> dict[str, str]:
    return environment(api, tmp_path, user="user")


async def test_progress_bar_is_drawn_and_erased(
    api: Api, environ: dict[str, str], tmp_path: Path
) -> None:
    big = tmp_path / "big.bin"
    big.write_bytes(os.urandom(24 * MIB))
    await (await api.client("user")).post("/vfolders", {"name": "data"})
    for words in (
        ["vfolder", "upload", "data", str(big)],
        ["vfolder", "download", "data", "big.bin", "--to", str(tmp_path / "down")],
    ):
        shown = await asyncio.to_thread(run_on_terminal, words, environ, pipes_stdout=True)
        drawn = shown.drawn
        assert shown.code == 0, drawn
        assert shown.stdout.startswith("1 file, 25.2 MB")
        assert "big.bin" in drawn and "━" in drawn
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn)
        amounts = [float(found) for found in re.findall(r"big\.bin .*?([\d.]+)/25\.2 MB", plain)]
        assert amounts == sorted(amounts) and amounts, plain
        # At the end, the bar is erased and the cursor is visible again.
        assert drawn.rfind("\x1b[?25h") > drawn.rfind("\x1b[?25l")
        assert drawn.rfind("\x1b[2K") > drawn.rfind("big.bin")


async def test_control_characters_in_a_file_name_are_not_printed(
    api: Api, environ: dict[str, str], tmp_path: Path
) -> None:
    odd = tmp_path / "a\x1b]0;owned\x07b.bin"
    odd.write_bytes(b"x" * (9 * MIB))
    await (await api.client("user")).post("/vfolders", {"name": "data"})
    words = ["vfolder", "upload", "data", str(odd)]
    shown = await asyncio.to_thread(run_on_terminal, words, environ, pipes_stdout=True)
    assert "\x1b]0;owned" not in shown.drawn + shown.stdout
