"""Commands that the owner runs through a tunnel; one stream carries all pipes of a command."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from contextlib import suppress

from bai_services.core.errors import InvalidRequest
from bai_services.tunnel.channels import Channel, pack
from bai_services.tunnel.endpoint import Stream

CHUNK_BYTES = 64 * 1024
KEEPALIVE_INTERVAL_SECONDS = 5.0
NOT_FOUND, NOT_EXECUTABLE = 127, 126


class Commands:
    """Runs commands, and kills a command's process group when its client has disconnected."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._running: set[asyncio.Task[None]] = set()

    async def serve(self, stream: Stream, text: str) -> None:
        """Run a command, given as a JSON list of words, and connect it to a stream."""
        words = _words(text)
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        reader, writer = await asyncio.open_connection(sock=theirs)
        task = loop.create_task(self._run(words, reader, writer))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await loop.create_connection(lambda: stream, sock=ours)

    async def _run(
        self, words: list[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            code = await self._run_process(words, reader, writer)
            writer.write(pack(Channel.EXIT, str(code).encode()))
            await writer.drain()
        except ConnectionError:
            pass  # the client has disconnected
        finally:
            writer.close()

    async def _run_process(
        self, words: list[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> int:
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                cwd=self._directory,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            writer.write(pack(Channel.ERRORS, f"{words[0]}: {error}\n".encode()))
            return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        assert process.stdin and process.stdout and process.stderr
        sending_input = asyncio.ensure_future(_copy_input(reader, process.stdin))
        keepalives = asyncio.ensure_future(_send_keepalives(writer))
        copying_output = asyncio.gather(
            _copy_output(process.stdout, Channel.OUTPUT, writer),
            _copy_output(process.stderr, Channel.ERRORS, writer),
        )
        try:
            await asyncio.wait((copying_output, keepalives), return_when="FIRST_COMPLETED")
            if keepalives.done():
                keepalives.result()  # raises: the client has disconnected
            await copying_output
            code = await process.wait()
            return 128 - code if code < 0 else code
        finally:
            for task in (sending_input, keepalives, copying_output):
                task.cancel()
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()


def _words(text: str) -> list[str]:
    try:
        words = json.loads(text)
    except ValueError:
        words = None
    if not isinstance(words, list) or not words or not all(isinstance(w, str) for w in words):
        raise InvalidRequest("a command must be a JSON list of at least one string")
    return words


async def _copy_input(reader: asyncio.StreamReader, stdin: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while content := await reader.read(CHUNK_BYTES):
            stdin.write(content)
            await stdin.drain()
    stdin.close()


async def _copy_output(
    output: asyncio.StreamReader, channel: Channel, writer: asyncio.StreamWriter
) -> None:
    while content := await output.read(CHUNK_BYTES):
        writer.write(pack(channel, content))
        await writer.drain()


async def _send_keepalives(writer: asyncio.StreamWriter) -> None:
    """Send keepalives until the client has disconnected, which raises ``ConnectionError``.

    Without them, the disconnect would go unnoticed while the command prints nothing.
    """
    while True:
        await asyncio.sleep(KEEPALIVE_INTERVAL_SECONDS)
        writer.write(pack(Channel.ALIVE))
        await writer.drain()
