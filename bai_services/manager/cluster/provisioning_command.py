"""Run the provisioning command of the administrator."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Version of the JSON objects that the command reads and writes.
PROTOCOL = 1
MAX_OUTPUT_BYTES = 64 * 2**10
MAX_MESSAGE_CHARACTERS = 500
MAX_REFERENCE_CHARACTERS = 255
# All other variables of the manager are withheld: some of them are secrets.
_PASSED_VARIABLES = ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR")
# The administrator sets variables of the command with this prefix, which is removed.
PREFIX = "BAI_PROVISIONING_ENV_"


class CommandFailed(Exception):
    """The command has failed; the message has the reason and may be shown to administrators."""


@dataclass(frozen=True, slots=True)
class ProvisioningCommand:
    """A program that reads one JSON object from stdin and writes one to stdout."""

    path: str
    timeout_seconds: float

    async def run(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Run the command and return its response.

        Raises
        ------
        CommandFailed
            If it cannot be started, takes too long, exits with a status other than 0, or does not
            write a JSON object of at most ``MAX_OUTPUT_BYTES``.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                self.path,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=command_environment(os.environ),
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise CommandFailed(f"the command cannot be started: {error.strerror}") from None
        try:
            async with asyncio.timeout(self.timeout_seconds):
                body = json.dumps({"version": PROTOCOL, **request}).encode()
                output, errors, _ = await asyncio.gather(
                    _read(process.stdout), _read(process.stderr), _write(process.stdin, body)
                )
                code = await process.wait()
        except TimeoutError:
            raise CommandFailed(f"no response within {self.timeout_seconds:g} s") from None
        finally:
            # Its child processes belong to the same process group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(asyncio.ensure_future(process.wait()))
        return _response(code, output, errors)


def command_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the command: no variable of the manager that may be secret."""
    passed = {name: environ[name] for name in _PASSED_VARIABLES if name in environ}
    own = {
        name.removeprefix(PREFIX): text
        for name, text in environ.items()
        if name.startswith(PREFIX) and name != PREFIX
    }
    return {**passed, **own}


def _response(code: int, output: bytes, errors: bytes) -> dict[str, Any]:
    if code:
        lines = errors.decode(errors="replace").strip().splitlines()
        raise CommandFailed(_short(f"exit status {code}" + (f": {lines[-1]}" if lines else "")))
    if len(output) > MAX_OUTPUT_BYTES:
        raise CommandFailed(f"it wrote more than {MAX_OUTPUT_BYTES} bytes")
    try:
        response = json.loads(output)
    except (ValueError, RecursionError):
        response = None
    if not isinstance(response, dict):
        raise CommandFailed("it wrote no JSON object")
    if response.get("error"):
        raise CommandFailed(_short(str(response["error"])))
    return response


def _short(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:MAX_MESSAGE_CHARACTERS]


async def _read(stream: asyncio.StreamReader | None) -> bytes:
    """Read all output, but keep only slightly more than the allowed length."""
    assert stream is not None
    kept = b""
    while part := await stream.read(2**16):
        if len(kept) <= MAX_OUTPUT_BYTES:
            kept += part
    return kept


async def _write(stream: asyncio.StreamWriter | None, body: bytes) -> None:
    assert stream is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stream.write(body)
        await stream.drain()
    stream.close()
