"""Speed of the web UI in Chromium: first page, page changes, a large table, events, memory.

The demo (process engine) and the browser run on the same machine. The first page is measured with
an empty cache. Times are medians of at least five runs.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bai_services.webui.assets import DIRECTORY
from tests.e2e.sessions import start, stop
from tests.hub import RunningHub
from tests.testbed import chromium

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page, Request

RUNS = 5
SESSIONS = 100_000
PAGE_CHANGES = 200
IDLE_SECONDS = 120
PAGES = ("/start", "/sessions", "/data", "/dashboard")
UI = "/services/bai"
TABLE_ROW = ".ant-table-row"
# Copies an ended session; `add_sessions` lists the columns that differ between the copies.
COPY = """
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count)
INSERT INTO sessions ({columns})
SELECT {values} FROM sessions, numbers WHERE sessions.id = :id
"""


async def sign_in(page: Page, hub: RunningHub) -> float:
    """Sign in; return the milliseconds until the page *Start* is usable."""
    await page.goto(f"{hub.url}{UI}/start")
    await page.fill("#username_input", "user")
    await page.fill("#password_input", hub.password)
    began = time.perf_counter()
    await page.press("#password_input", "Enter")
    await page.locator("#content h3, #content h2").first.wait_for()
    await page.locator("#content .ant-skeleton").first.wait_for(state="detached")
    return (time.perf_counter() - began) * 1000


async def first_pages(browser: Browser, hub: RunningHub) -> dict[str, Any]:
    times, sizes = [], []
    for _ in range(RUNS):
        context = await browser.new_context(locale="en-US")
        page = await context.new_page()
        loaded: list[Request] = []
        # Playwright cannot register methods of built-in types.
        page.on("requestfinished", lambda request, loaded=loaded: loaded.append(request))
        times.append(await sign_in(page, hub))
        scripts = [request for request in loaded if request.url.endswith(".js")]
        parts = [request for request in scripts if f"{UI}/assets/" in request.url]
        sizes.append(sum([(await part.sizes())["responseBodySize"] for part in parts]) / 1000)
        await context.close()
    return {
        "first_page_ms": round(statistics.median(times)),
        "script_kb": round(statistics.median(sizes)),
    }


async def open_from_sidebar(page: Page, path: str) -> float:
    """Open a page through the sidebar; return the milliseconds until the page is shown."""
    began = time.perf_counter()
    await page.locator(f'.ant-menu a[href$="{path}"]').first.click()
    await page.wait_for_url(f"**{path}*")
    await page.locator("#content h3, #content h2").first.wait_for()
    return (time.perf_counter() - began) * 1000


async def page_changes(page: Page) -> dict[str, Any]:
    for path in PAGES:
        await open_from_sidebar(page, path)
    times = [await open_from_sidebar(page, path) for _ in range(RUNS) for path in PAGES]
    browser = await page.context.new_cdp_session(page)
    before = await heap_mib(browser)
    for number in range(PAGE_CHANGES):
        await open_from_sidebar(page, PAGES[number % len(PAGES)])
    return {
        "page_change_ms": round(statistics.median(times)),
        "memory_growth_mib": round(await heap_mib(browser) - before, 1),
    }


async def heap_mib(browser: Any) -> float:
    await browser.send("HeapProfiler.collectGarbage")
    usage = await browser.send("Runtime.getHeapUsage")
    return float(usage["usedSize"]) / 2**20


async def event_ms(page: Page, hub: RunningHub) -> dict[str, Any]:
    """Create sessions; return the median milliseconds from the response to the new row."""
    await page.goto(f"{hub.url}{UI}/sessions")
    await page.locator("#content h3").wait_for()
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    times = []
    with hub.rest("user") as rest:
        for number in range(RUNS):
            name = f"event-{number}"
            body = {"name": name, "project": "default", "type": "batch", "starts_at": tomorrow}
            body |= {"startup_command": "true"}
            created = await asyncio.to_thread(rest.post, "/sessions", json=body)
            began = time.perf_counter()
            await page.get_by_role("link", name=name).wait_for()
            times.append((time.perf_counter() - began) * 1000)
            await asyncio.to_thread(rest.delete, f"/sessions/{created.json()['id']}")
    return {"event_ms": round(statistics.median(times))}


async def idle_requests(page: Page, hub: RunningHub) -> dict[str, Any]:
    await page.goto(f"{hub.url}{UI}/dashboard")
    await page.locator("#content h3").first.wait_for()
    asked: list[Request] = []
    page.on("request", lambda request: asked.append(request))
    await page.evaluate("ms => new Promise(done => setTimeout(done, ms))", IDLE_SECONDS * 1000)
    return {"idle_requests_per_minute": round(len(asked) * 60 / IDLE_SECONDS, 1)}


def add_sessions(hub: RunningHub, session_id: str, count: int = SESSIONS) -> None:
    """Copy a session ``count`` times in the demo's database."""
    (path,) = (path for path in hub.home.rglob("*.sqlite") if path.name != "jupyterhub.sqlite")
    with closing(sqlite3.connect(path, timeout=60)) as database, database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(sessions)")]
        changed = {
            "id": "'copy-' || n",
            "name": "'copy-' || n",
            "sequence": "sequence + n",
            "hub_server": "'copy-' || n",
        }
        values = ", ".join(changed.get(column, column) for column in columns)
        database.execute(
            COPY.format(columns=", ".join(columns), values=values),
            {"count": count, "id": session_id},
        )


async def table_page_ms(page: Page, hub: RunningHub) -> dict[str, Any]:
    await page.goto(f"{hub.url}{UI}/sessions?tab=ended&name=copy")
    await page.locator(TABLE_ROW).first.wait_for()
    times = []
    for _ in range(RUNS):
        first = await page.locator(f"{TABLE_ROW} a").first.inner_text()
        began = time.perf_counter()
        await page.locator(".ant-pagination-next").click()
        await page.wait_for_function(
            "([rows, text]) => document.querySelector(`${rows} a`)?.innerText !== text",
            arg=[TABLE_ROW, first],
        )
        times.append((time.perf_counter() - began) * 1000)
    return {"table_page_ms": round(statistics.median(times))}


async def measure(browser: Browser, hub: RunningHub) -> dict[str, Any]:
    result = await first_pages(browser, hub)
    context = await browser.new_context(locale="en-US", viewport={"width": 1440, "height": 900})
    page = await context.new_page()
    await sign_in(page, hub)
    result |= await page_changes(page)
    result |= await event_ms(page, hub)
    result |= await idle_requests(page, hub)
    with hub.rest("user") as rest:
        session = await asyncio.to_thread(start, rest, "to-copy")
        await asyncio.to_thread(stop, rest, session["id"])
    await asyncio.to_thread(add_sessions, hub, session["id"])
    result |= await table_page_ms(page, hub)
    await context.close()
    return result


async def run() -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bai-webui-") as folder:
        hub = RunningHub(Path(folder))
        try:
            await asyncio.to_thread(hub.start)
            async with chromium.launch() as browser:
                return await measure(browser, hub)
        finally:
            await asyncio.to_thread(hub.stop)


def main() -> None:
    if not DIRECTORY.is_dir():
        sys.exit("the web UI is not built: run `make install`")
    print(json.dumps(asyncio.run(run()), indent=2))


if __name__ == "__main__":
    main()
