"""Size, load time and running cost of the session panel in a real JupyterLab."""

from __future__ import annotations

import asyncio
import gzip
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from tests.e2e.lab import sign_in
from tests.e2e.sessions import start, stop
from tests.hub import RunningHub
from tests.testbed import chromium

if TYPE_CHECKING:
    from collections.abc import Mapping

    from playwright.async_api import Browser, CDPSession, Page, Response

ROOT = Path(__file__).resolve().parents[1]
STATIC = ROOT / "bai_labext" / "labextension" / "bai-labext" / "static"
LOADS = 5
MINUTES = 3
OPEN_SECONDS = 60
SETTLE_SECONDS = 10
# The panel's scripts. If they are blocked, JupyterLab starts without the extension.
SCRIPTS = "**/lab/extensions/bai-labext/**"
# Processes that serve an open panel, each with a string that its command line contains.
PARTS = {"session": "-m bai_labext", "manager": "bai_services.app", "hub_proxy": "http-proxy"}
TIMEOUT_MS = 120_000
# Returns the times at which JupyterLab and the panel's tab appeared, in milliseconds since the
# navigation.
READY = """
() => new Promise(done => {
    const seen = {};
    const check = () => {
        const now = performance.now();
        if (document.querySelector('.jp-Launcher, .jp-FileBrowser')) seen.lab ??= now;
        if (document.querySelector('[data-id="bai-session-panel"]')) seen.panel ??= now;
        if (seen.lab && seen.panel) done(seen); else requestAnimationFrame(check);
    };
    check();
})
"""


def bundle_bytes() -> tuple[int, int]:
    """Return the bytes of the scripts, uncompressed and compressed with gzip."""
    scripts = [path.read_bytes() for path in sorted(STATIC.glob("*.js"))]
    return sum(map(len, scripts)), sum(len(gzip.compress(script)) for script in scripts)


async def measure_minute(page: Page, hub: RunningHub) -> dict[str, float]:
    """Wait one minute; return the panel's requests, their kilobytes, and the used CPU seconds.

    The CPU seconds are those of the page and of each process in ``PARTS``.
    """
    responses: list[Response] = []

    def record_response(response: Response) -> None:
        responses.append(response)

    page.on("response", record_response)
    browser = await page.context.new_cdp_session(page)
    await browser.send("Performance.enable")
    parts = parts_of(hub)
    before = {**cpu_seconds(parts), **await page_seconds(browser)}
    await page.evaluate("ms => new Promise(done => setTimeout(done, ms))", OPEN_SECONDS * 1000)
    after = {**cpu_seconds(parts), **await page_seconds(browser)}
    page.remove_listener("response", record_response)
    ours = [response for response in responses if "/bai/api/" in response.url]
    return {
        "requests": len(ours),
        "kilobytes": sum([await bytes_of(response) for response in ours]) / 1000,
        **{f"{name}_cpu_seconds": after[name] - before[name] for name in before},
    }


async def bytes_of(response: Response) -> int:
    """Return the bytes of headers and bodies of a request and its response."""
    sizes = await response.request.sizes()
    headers = sizes["requestHeadersSize"] + sizes["responseHeadersSize"]
    return headers + sizes["requestBodySize"] + sizes["responseBodySize"]


def parts_of(hub: RunningHub) -> dict[str, psutil.Process]:
    parts: dict[str, psutil.Process] = {}
    for process in hub.left_running():
        words = " ".join(process.cmdline())
        # The sandbox wrapper has the same command line as the session; do not count it.
        is_bwrap = "bwrap" in words
        parts |= {name: process for name, word in PARTS.items() if word in words and not is_bwrap}
    return parts


def cpu_seconds(parts: Mapping[str, psutil.Process]) -> dict[str, float]:
    times = {name: process.cpu_times() for name, process in parts.items()}
    return {name: each.user + each.system for name, each in times.items()}


async def page_seconds(browser: CDPSession) -> dict[str, float]:
    """Return the CPU seconds that the page's main thread has used, in total and for scripts."""
    metrics = (await browser.send("Performance.getMetrics"))["metrics"]
    values = {metric["name"]: metric["value"] for metric in metrics}
    return {"page": values["TaskDuration"], "page_script": values["ScriptDuration"]}


async def compare_minutes(page: Page, hub: RunningHub, url: str) -> dict[str, Any]:
    """Compare alternating minutes with an open panel and without the extension.

    Return medians; ``cpu_percent_of_a_core`` is the difference between the two kinds of minutes.
    """
    minutes: dict[str, list[dict[str, float]]] = {"open": [], "without": []}
    for _ in range(MINUTES):
        await page.route(SCRIPTS, lambda route: route.abort())
        await page.goto(url)
        await page.locator(".jp-Launcher").wait_for(timeout=TIMEOUT_MS)
        await wait_until_settled(page)
        minutes["without"].append(await measure_minute(page, hub))
        await page.unroute_all(behavior="wait")
        await page.goto(url)
        tab = page.locator('.lm-TabBar-tab[data-id="bai-session-panel"]')
        await tab.click(timeout=TIMEOUT_MS)
        await page.locator(".bai-Chart").first.wait_for(timeout=TIMEOUT_MS)
        await wait_until_settled(page)
        minutes["open"].append(await measure_minute(page, hub))
    opened, without = (
        {key: statistics.median(each[key] for each in minutes[kind]) for key in minutes[kind][0]}
        for kind in ("open", "without")
    )
    costs = {key: opened[key] - without[key] for key in opened if key.endswith("cpu_seconds")}
    return {
        "open_minute": {key: opened[key] for key in ("requests", "kilobytes")},
        "cpu_percent_of_a_core": {
            key.removesuffix("_cpu_seconds"): round(seconds * 100 / OPEN_SECONDS, 2)
            for key, seconds in costs.items()
        },
        "minutes": minutes,
    }


async def wait_until_settled(page: Page) -> None:
    """Wait until the page has completed its one-time work after loading."""
    await page.evaluate("ms => new Promise(done => setTimeout(done, ms))", SETTLE_SECONDS * 1000)


async def measure(browser: Browser, hub: RunningHub) -> dict[str, Any]:
    session = await asyncio.to_thread(start, hub.rest("user"), "measured")
    page = await browser.new_page()
    await sign_in(page, hub, "user")
    later: list[float] = []
    lab: list[float] = []
    for _ in range(LOADS):
        await page.goto(f"{hub.url}{session['url']}lab?reset", wait_until="commit")
        seen = await page.evaluate(READY)
        later.append(seen["panel"] - seen["lab"])
        lab.append(seen["lab"])
    costs = await compare_minutes(page, hub, f"{hub.url}{session['url']}lab?reset")
    await page.close()
    await asyncio.to_thread(stop, hub.rest("user"), session["id"])
    return {
        "lab_ms": round(statistics.median(lab)),
        "panel_after_lab_ms": round(statistics.median(later)),
        "panel_after_lab_ms_most": round(max(later)),
        **costs,
    }


async def run() -> dict[str, Any]:
    plain, compressed = bundle_bytes()
    result: dict[str, Any] = {"bundle_bytes": plain, "bundle_gzip_bytes": compressed}
    with tempfile.TemporaryDirectory(prefix="bai-labext-") as folder:
        hub = RunningHub(Path(folder))
        try:
            await asyncio.to_thread(hub.start)
            async with chromium.launch() as browser:
                result |= await measure(browser, hub)
        finally:
            await asyncio.to_thread(hub.stop)
    return result


def main() -> None:
    if not STATIC.is_dir():
        sys.exit("the panel is not built: run `make install`")
    print(json.dumps(asyncio.run(run()), indent=2))


if __name__ == "__main__":
    main()
