"""Start, poll and stop the kernels of one session together: all of them run, or none of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from bai_services.core.sessions.end_reason import EndReason
from bai_services.core.sessions.kernel_group import kernel_end_text
from bai_services.core.sessions.launch_plan import LaunchPlan
from bai_services.engines.base import Engine, EngineError, EngineUnreachable, Exit, Running

# Time for calls of an engine in addition to the time between SIGTERM and SIGKILL.
ABANDON_SECONDS = 5.0

T = TypeVar("T")


async def start(
    engine: Engine, plan: LaunchPlan, environ: Mapping[str, str], command: Sequence[str]
) -> Running:
    """Start every kernel of a session, the main one last; if one fails, stop the others.

    Only the main kernel runs a server, so only it gets the Hub's environment ``environ``.

    Raises
    ------
    EngineError
        See ``Engine.start``. If a sub kernel failed, the message names it. The message of
        ``EngineUnreachable`` names no kernel.
    """
    starting = [asyncio.ensure_future(_start_sub(engine, sub)) for sub in plan.subs]
    try:
        subs = await asyncio.gather(*starting)
        main = await engine.start(plan, environ, command)
    except BaseException:
        # A start that is cancelled removes its own remains; here, stop the kernels whose start was
        # complete.
        for task in starting:
            task.cancel()
        outcomes = await asyncio.gather(*starting, return_exceptions=True)
        await _stop_all(engine, [one for one in outcomes if isinstance(one, Running)])
        raise
    return replace(main, subs=tuple(subs))


async def poll(engine: Engine, running: Running) -> Exit | None:
    """Return None while every kernel runs, else the exit of the main kernel or of a sub kernel.

    Raises
    ------
    EngineUnreachable
        If the main kernel's engine does not respond. Unreachable engines of sub kernels are
        ignored.
    """
    if running.is_attached:
        return await engine.poll_attached(running)
    ended = await engine.poll(running)
    if ended is not None or not running.subs:
        return ended
    outcomes = await asyncio.gather(
        *(engine.poll(sub) for sub in running.subs), return_exceptions=True
    )
    for sub, outcome in zip(running.subs, outcomes, strict=True):
        if isinstance(outcome, Exit):
            # Leave the code out, because the main kernel determines the exit code of a session.
            text = kernel_end_text(sub.hostname, outcome.text, outcome.code)
            return Exit(None, EndReason.KERNEL_ENDED, text)
        if isinstance(outcome, BaseException) and not isinstance(outcome, EngineUnreachable):
            raise outcome
    return None


async def stop(engine: Engine, running: Running, now: bool = False) -> Exit:
    """Stop all kernels concurrently and return the exit of the main one.

    Of a batch session that its agent has started, stop only the attached server.

    Raises
    ------
    EngineUnreachable
        If an engine does not respond; a kernel may still be running.
    """
    if running.is_attached:
        return await engine.stop_attached(running, now)
    return (await _for_all(running, lambda one: engine.stop(one, now)))[0]


async def abandon(engine: Engine, running: Running) -> None:
    """Stop and remove the kernels whose engines respond; lost agents have stopped the others.

    No call is needed for a session with one kernel, because its only agent is lost.
    """
    if not running.subs:
        return
    seconds = engine.stop_grace_seconds + ABANDON_SECONDS

    async def stop_one(kernel: Running) -> None:
        await engine.stop(kernel)
        await engine.remove(kernel)

    stops = [asyncio.ensure_future(stop_one(one)) for one in (running, *running.subs)]
    _, late = await asyncio.wait(stops, timeout=seconds)
    for stop in late:
        stop.cancel()
    await asyncio.gather(*stops, return_exceptions=True)


async def remove(engine: Engine, running: Running) -> None:
    """Remove the containers or files of the ended kernels (see ``Engine.remove``)."""
    if not running.is_attached:
        await _for_all(running, engine.remove)


async def read_logs(engine: Engine, running: Running, max_bytes: int) -> tuple[str, dict[str, str]]:
    """Return the last output of the main kernel, and that of each sub kernel by host name.

    ``max_bytes`` limits the total. If there are sub kernels, the main kernel gets half of it.
    """
    if running.is_attached:
        return "", {}
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


async def _for_all(running: Running, action: Callable[[Running], Awaitable[T]]) -> list[T]:
    """Run an action on all kernels concurrently and return the results, the main kernel's first.

    If an action fails, raise the first error after all have finished.
    """
    outcomes = await asyncio.gather(
        *(action(one) for one in (running, *running.subs)), return_exceptions=True
    )
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]


async def _stop_all(engine: Engine, started: Sequence[Running]) -> None:
    """Stop the kernels of a failed start.

    If that fails, the agent finds the kernels by their labels, and the manager requests their
    removal.
    """
    for running in started:
        try:
            await engine.stop(running, now=True)
            await engine.remove(running)
        except EngineError:
            continue
