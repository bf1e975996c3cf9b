"""``bai login URL``: the user signs in with the browser, and the command gets a token."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.lab import sign_in
from tests.hub import RunningHub

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

BAI = (sys.executable, "-m", "bai_services.cli.main")


async def test_bai_login_gets_a_token_through_the_browser(
    browser: Browser, hub: RunningHub, tmp_path: Path
) -> None:
    environment = {
        **{name: text for name, text in os.environ.items() if not name.startswith("BAI_")},
        "BAI_CONFIG_DIR": str(tmp_path / "config"),
    }
    login = await asyncio.create_subprocess_exec(
        *BAI, "login", hub.url, "--no-browser", env=environment, stderr=asyncio.subprocess.PIPE
    )
    assert login.stderr is not None
    line = (await asyncio.wait_for(login.stderr.readline(), 60)).decode()
    address = line.rpartition(" ")[2].strip()
    assert address.startswith(f"{hub.url}/services/bai/cli-login?"), line

    page = await browser.new_page()
    await sign_in(page, hub, "user2")
    await page.goto(address)
    await page.click('form button[type="submit"]')
    await page.get_by_text("Signed in").wait_for()
    assert await asyncio.wait_for(login.wait(), 60) == 0

    whoami = await asyncio.create_subprocess_exec(
        *BAI, "whoami", "--json", env=environment, stdout=asyncio.subprocess.PIPE
    )
    answer, _ = await asyncio.wait_for(whoami.communicate(), 60)
    assert json.loads(answer)["username"] == "user2"
