"""Run the hook: a program of the user or the image, before the session is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# Variable with the path of the image's hook, which is in a label of the image.
IMAGE_HOOK = "BAI_ON_PREEMPT"
USER_HOOK = ".bai/on-preempt"
MAX_OUTPUT_BYTES = 64 * 1024
MESSAGE_CHARACTERS = 300
TERMINATION_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class HookResult:
    """``exit_code`` is None if the hook did not start or did not end in time; ``message`` is then
    the reason, otherwise the last line of the output.
    """

    exit_code: int | None
    message: str = ""


def find_hook(home: Path, environ: Mapping[str, str]) -> Path | None:
    """Return the path of the user's hook, otherwise the image's; None if there is no hook."""
    candidates = [home / USER_HOOK]
    if named := environ.get(IMAGE_HOOK):
        candidates.append(Path(named))
    return next((path for path in candidates if path.is_file()), None)


async def run_hook(
    hook: Path, home: Path, environ: Mapping[str, str], seconds: float
) -> HookResult:
    """Run the hook for at most ``seconds``; its output goes to the session's log."""
    if not os.access(hook, os.X_OK):
        return HookResult(None, f"{hook} is not executable")
    try:
        process = await asyncio.create_subprocess_exec(
            str(hook),
            cwd=home,
            env=dict(environ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return HookResult(None, f"{hook} cannot be started: {error.strerror}")
    output = bytearray()
    reader = asyncio.create_task(_copy_output(process, output))
    try:
        async with asyncio.timeout(max(seconds, 0.1)):
            code = await process.wait()
            await reader
    except TimeoutError:
        await _terminate(process)
        return HookResult(None, f"stopped after {seconds:.0f} s, its time limit")
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
    lines = output.decode(errors="replace").strip().splitlines()
    return HookResult(code, lines[-1][:MESSAGE_CHARACTERS] if lines else "")


async def _copy_output(process: asyncio.subprocess.Process, output: bytearray) -> None:
    """Copy at most ``MAX_OUTPUT_BYTES`` to the log; discard the rest, so the hook never blocks."""
    assert process.stdout is not None
    while chunk := await process.stdout.read(4096):
        chunk = chunk[: MAX_OUTPUT_BYTES - len(output)]
        if chunk:
            output += chunk
            sys.stdout.write(chunk.decode(errors="replace"))
            sys.stdout.flush()


async def _terminate(process: asyncio.subprocess.Process) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TERMINATION_SECONDS):
                await process.wait()
                return
