"""Background loops: intervals between their steps."""

from __future__ import annotations

import asyncio

from bai_services.manager.loop import Loop

HOUR_SECONDS = 3600.0


async def test_step_can_shorten_the_time_until_the_next_one() -> None:
    has_run_twice = asyncio.Event()
    steps = 0

    async def step() -> None:
        nonlocal steps
        steps += 1
        if steps == 2:
            has_run_twice.set()
        else:
            # The earlier of two times counts.
            loop.run_within(0.01)
            loop.run_within(10 * HOUR_SECONDS)

    loop = Loop("test", step, HOUR_SECONDS)
    loop.start()
    async with asyncio.timeout(30):
        await has_run_twice.wait()
    await loop.stop()
    assert steps == 2
