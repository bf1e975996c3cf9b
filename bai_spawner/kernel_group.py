"""The kernels of one session as one thing: all of them run, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from bai_services.core.sessions.kernel_group import gang_end

from .engines.base import Engine, EngineError, EngineUnreachable, Exit, Running
from .plan import LaunchPlan

T = TypeVar("T")


async def start(
    engine: Engine, plan: LaunchPlan, environ: Mapping[str, str], command: Sequence[str]
) -> Running:
    """Start every kernel of a session, the main one last; leave nothing where one fails.

    The Hub's environment is the main kernel's alone: the others are no servers.

    Raises
    ------
    EngineError
        As ``Engine.start``, naming the kernel that failed where there are several.
    """
    starting = [asyncio.ensure_future(_start_sub(engine, sub)) for sub in plan.subs]
    try:
        subs = await asyncio.gather(*starting)
        main = await engine.start(plan, environ, command)
    except BaseException:
        # Those that still start are given up; each of them leaves nothing behind.
        for task in starting:
            task.cancel()
        ended = await asyncio.gather(*starting, return_exceptions=True)
        await _end_all(engine, [one for one in ended if isinstance(one, Running)])
        raise
    return replace(main, subs=tuple(subs))


async def poll(engine: Engine, running: Running) -> Exit | None:
    """Return None while every kernel runs, else how the first that does not has ended.

    Raises
    ------
    EngineUnreachable
        If the engine of the main kernel does not say. A silent one of another says nothing.
    """
    ended = await engine.poll(running)
    if ended is not None or not running.subs:
        return ended
    found = await asyncio.gather(
        *(engine.poll(sub) for sub in running.subs), return_exceptions=True
    )
    for sub, how in zip(running.subs, found, strict=True):
        if isinstance(how, Exit):
            # No code: that of a session is the main kernel's.
            return Exit(None, gang_end(sub.hostname, how.reason, how.code))
        if isinstance(how, BaseException) and not isinstance(how, EngineUnreachable):
            raise how
    return None


async def stop(engine: Engine, running: Running, now: bool = False) -> Exit:
    """End all kernels side by side and return how the main one ended.

    Raises
    ------
    EngineUnreachable
        If an engine does not answer: a kernel may still run.
    """
    return (await _of_all(running, lambda one: engine.stop(one, now)))[0]


async def remove(engine: Engine, running: Running) -> None:
    """Remove what is left of all kernels."""
    await _of_all(running, engine.remove)


async def read_logs(engine: Engine, running: Running, max_bytes: int) -> tuple[str, dict[str, str]]:
    """Return the end of what the main kernel printed, and of the others by hostname.

    ``max_bytes`` is for all of them; the main kernel gets half where there are others.
    """
    if not running.subs:
        return await engine.read_log(running, max_bytes), {}
    share = max_bytes // 2 // len(running.subs)
    main = await engine.read_log(running, max_bytes // 2)
    texts = await asyncio.gather(*(engine.read_log(sub, share) for sub in running.subs))
    return main, {sub.hostname: text for sub, text in zip(running.subs, texts, strict=True)}


async def _start_sub(engine: Engine, plan: LaunchPlan) -> Running:
    try:
        return await engine.start(plan, {}, ())
    except EngineUnreachable:
        raise
    except EngineError as error:
        raise EngineError(f"{plan.hostname}: {error}", error.reason) from error


async def _of_all(running: Running, act: Callable[[Running], Awaitable[T]]) -> list[T]:
    """Do something with all kernels, main first; raise the first failure after all are done."""
    done = await asyncio.gather(
        *(act(one) for one in (running, *running.subs)), return_exceptions=True
    )
    for outcome in done:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in done if not isinstance(outcome, BaseException)]


async def _end_all(engine: Engine, started: Sequence[Running]) -> None:
    """End kernels of a start that failed; whatever cannot be ended is found by its label."""
    for running in started:
        try:
            await engine.stop(running, now=True)
            await engine.remove(running)
        except EngineError:
            continue
