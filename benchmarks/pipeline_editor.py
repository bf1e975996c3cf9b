"""Frames per second of the pipeline editor in Chromium, while its graph is moved with the mouse."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.hub import RunningHub
from tests.testbed import chromium

from . import webui

if TYPE_CHECKING:
    from playwright.async_api import FloatRect, Page

WIDTH = 20
SECONDS = 5
STEP_PIXELS = 8
# Counts the frames until it is called with false.
COUNT = """
() => {
  window.frames_shown = 0;
  window.is_counted = true;
  const next = () => {
    window.frames_shown += 1;
    if (window.is_counted) requestAnimationFrame(next);
  };
  requestAnimationFrame(next);
}
"""


def figures(tasks: int) -> dict[str, float]:
    """Start a demo and a browser; return the figures of a graph with this number of tasks."""
    return asyncio.run(_measured(tasks))


def _definition(tasks: int) -> str:
    lines = ["version: 1", "name: editor", "tasks:"]
    for number in range(tasks):
        first = number - number % WIDTH - WIDTH
        needs = sorted({first + (number + shift) % WIDTH for shift in (0, 1)}) if first >= 0 else []
        names = ", ".join(f"t{need}" for need in needs)
        lines.append(f"- {{name: t{number}, command: x, needs: [{names}]}}")
    return "\n".join(lines) + "\n"


async def _measured(tasks: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="bai-editor-") as folder:
        hub = RunningHub(Path(folder))
        try:
            await asyncio.to_thread(hub.start)
            with hub.rest("user") as rest:
                body = {"definition": _definition(tasks)}
                made = await asyncio.to_thread(rest.post, "/pipelines", json=body)
            async with chromium.launch() as browser:
                page = await browser.new_page(viewport={"width": 1440, "height": 900})
                await webui.sign_in(page, hub)
                key = made.json()["id"]
                await page.goto(f"{hub.url}{webui.UI}/pipelines?form=edit&item={key}")
                pane = page.locator(".react-flow__pane")
                node = page.locator(".react-flow__node").first
                await node.wait_for()
                shown = await page.locator(".react-flow__node").count()
                box = await pane.bounding_box()
                task = await node.bounding_box()
                assert box is not None and task is not None
                return {
                    # The corner of the pane has no task.
                    "editor_fps": await _fps(page, box["x"] + 5, box["y"] + 5, box),
                    "editor_drag_fps": await _fps(
                        page, task["x"] + task["width"] / 2, task["y"] + task["height"] / 2, box
                    ),
                    "editor_tasks": tasks,
                    "editor_shown_tasks": shown,
                }
        finally:
            await asyncio.to_thread(hub.stop)


async def _fps(page: Page, x: float, y: float, box: FloatRect) -> float:
    """Press the mouse at a point, move it to and fro, and return the frames per second."""
    await page.mouse.move(x, y)
    await page.mouse.down()
    await page.evaluate(COUNT)
    began = time.perf_counter()
    steps, direction = 0, 1
    limit = int(min(box["width"], box["height"]) / 2 / STEP_PIXELS)
    while (seconds := time.perf_counter() - began) < SECONDS:
        steps += direction
        direction = -1 if steps >= limit else 1 if steps <= 0 else direction
        await page.mouse.move(x + steps * STEP_PIXELS, y + steps * STEP_PIXELS)
    shown: Any = await page.evaluate("() => { window.is_counted = false; return frames_shown; }")
    await page.mouse.up()
    return round(float(shown) / seconds, 1)
