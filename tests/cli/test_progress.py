"""Progress bars on a real terminal: a pseudo-terminal of the kernel's, with the real command."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.testbed.manager import Api

MIB = 2**20
ROWS, COLUMNS = 24, 100


@pytest.fixture(autouse=True)
async def storage(api: Api) -> None:
    await api.world.manager.folders.vfolders.start()


def on_terminal(words: list[str], environ: dict[str, str]) -> tuple[int, str, str]:
    """Run a command whose standard error is a terminal; return code, output, what was drawn."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", ROWS, COLUMNS, 0, 0))
    with subprocess.Popen(
        words, env=environ, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs
    ) as process:
        os.close(theirs)
        drawn = bytearray()
        while True:
            try:
                drawn += os.read(ours, 65536)
            except OSError:  # the last one who had the terminal has ended
                break
        os.close(ours)
        assert process.stdout is not None
        said = process.stdout.read().decode()
    return process.returncode, said, drawn.decode()


@pytest.fixture
def environ(api: Api, hub_url: str, tmp_path: Path) -> dict[str, str]:
    keys = api.world.keys["user"]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("BAI_") and k != "NO_COLOR"}
    return {
        **kept,
        "TERM": "xterm-256color",
        "BAI_CONFIG_DIR": str(tmp_path / "config"),
        "BAI_URL": hub_url,
        "BAI_ACCESS_KEY": keys.access_key,
        "BAI_SECRET_KEY": keys.secret_key,
    }


async def test_bars_are_drawn_and_taken_away(
    api: Api, environ: dict[str, str], tmp_path: Path
) -> None:
    big = tmp_path / "big.bin"
    big.write_bytes(os.urandom(24 * MIB))
    await (await api.client("user")).post("/vfolders", {"name": "data"})
    bai = [sys.executable, "-m", "bai_services.cli.main", "vfolder"]
    for words in (
        [*bai, "upload", "data", str(big)],
        [*bai, "download", "data", "big.bin", "--to", str(tmp_path / "down")],
    ):
        code, said, drawn = await asyncio.to_thread(on_terminal, words, environ)
        assert code == 0, drawn
        assert said.startswith("1 file, 25.2 MB")
        assert "big.bin" in drawn and "━" in drawn
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn)
        amounts = [float(found) for found in re.findall(r"big\.bin .*?([\d.]+)/25\.2 MB", plain)]
        assert amounts == sorted(amounts) and amounts, plain
        # Taken away in the end: the line is erased, the cursor is there again.
        assert drawn.rfind("\x1b[?25h") > drawn.rfind("\x1b[?25l")
        assert drawn.rfind("\x1b[2K") > drawn.rfind("big.bin")


async def test_a_name_cannot_write_to_the_terminal(
    api: Api, environ: dict[str, str], tmp_path: Path
) -> None:
    odd = tmp_path / "a\x1b]0;owned\x07b.bin"
    odd.write_bytes(b"x" * (9 * MIB))
    await (await api.client("user")).post("/vfolders", {"name": "data"})
    words = [sys.executable, "-m", "bai_services.cli.main", "vfolder", "upload", "data", str(odd)]
    _, said, drawn = await asyncio.to_thread(on_terminal, words, environ)
    assert "\x1b]0;owned" not in drawn + said
