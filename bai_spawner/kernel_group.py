"""Start, watch and stop all kernels of one session together: all run, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from bai_services.core.sessions.end_reason import EndReason
from bai_services.core.sessions.kernel_group import gang_end
from bai_services.core.sessions.launch_plan import LaunchPlan

from .engines.base import Engine, EngineError, EngineUnreachable, Exit, Running

T = TypeVar("T")


async def start(
    engine: Engine, plan: LaunchPlan, environ: Mapping[str, str], command: Sequence[str]
) -> Running:
    """Start every kernel of a session, the main one last; if one fails, leave none.

    Only the main kernel gets the Hub's environment: the others are not servers.

    Raises
    ------
    EngineError
        As ``Engine.start``, naming the failed kernel if there are several.
    """
    starting = [asyncio.ensure_future(_start_sub(engine, sub)) for sub in plan.subs]
    try:
        subs = await asyncio.gather(*starting)
        main = await engine.start(plan, environ, command)
    except BaseException:
        # Cancel the starts in progress; each cleans up after itself.
        for task in starting:
            task.cancel()
        ended = await asyncio.gather(*starting, return_exceptions=True)
        await _end_all(engine, [one for one in ended if isinstance(one, Running)])
        raise
    return replace(main, subs=tuple(subs))


async def poll(engine: Engine, running: Running) -> Exit | None:
    """Return None while every kernel runs, else how the first ended one has ended.

    Raises
    ------
    EngineUnreachable
        If the main kernel's engine does not respond. That of a sub kernel is ignored.
    """
    ended = await engine.poll(running)
    if ended is not None or not running.subs:
        return ended
    found = await asyncio.gather(
        *(engine.poll(sub) for sub in running.subs), return_exceptions=True
    )
    for sub, how in zip(running.subs, found, strict=True):
        if isinstance(how, Exit):
            # Without code: the exit code of a session is that of its main kernel.
            text = gang_end(sub.hostname, how.text, how.code)
            return Exit(None, EndReason.KERNEL_ENDED, text)
        if isinstance(how, BaseException) and not isinstance(how, EngineUnreachable):
            raise how
    return None


async def stop(engine: Engine, running: Running, now: bool = False) -> Exit:
    """Stop all kernels concurrently and return how the main one ended.

    Raises
    ------
    EngineUnreachable
        If an engine does not respond: a kernel may still run.
    """
    return (await _of_all(running, lambda one: engine.stop(one, now)))[0]


async def remove(engine: Engine, running: Running) -> None:
    """Remove the remains of all kernels."""
    await _of_all(running, engine.remove)


async def read_logs(engine: Engine, running: Running, max_bytes: int) -> tuple[str, dict[str, str]]:
    """Return the end of the main kernel's output, and of the others' by hostname.

    ``max_bytes`` is the total; the main kernel gets half of it if there are others.
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
    """Run an action on all kernels, main first; raise the first error after all have finished."""
    done = await asyncio.gather(
        *(act(one) for one in (running, *running.subs)), return_exceptions=True
    )
    for outcome in done:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in done if not isinstance(outcome, BaseException)]


async def _end_all(engine: Engine, started: Sequence[Running]) -> None:
    """Stop the kernels of a failed start; the reconciler finds the remaining ones by label."""
    for running in started:
        try:
            await engine.stop(running, now=True)
            await engine.remove(running)
        except EngineError:
            continue
