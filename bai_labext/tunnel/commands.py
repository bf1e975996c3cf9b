"""Commands that the session's owner runs through a tunnel, each with its pipes on one stream."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from contextlib import suppress

from bai_services.core.errors import InvalidRequest
from bai_services.tunnel.channels import Channel, pack
from bai_services.tunnel.end import Stream

PIECE_BYTES = 64 * 1024
ALIVE_SECONDS = 5.0
NOT_FOUND, NOT_EXECUTABLE = 127, 126


class Commands:
    """Runs the commands; one whose client is gone is ended with all its child processes."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._running: set[asyncio.Task[None]] = set()

    async def serve(self, stream: Stream, text: str) -> None:
        """Run the command, a JSON list of words, and connect it with a stream."""
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
            code = await self._carry(words, reader, writer)
            writer.write(pack(Channel.EXIT, str(code).encode()))
            await writer.drain()
        except ConnectionError:
            pass  # the client is gone
        finally:
            writer.close()

    async def _carry(
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
        typing = asyncio.ensure_future(_to_process(reader, process.stdin))
        watching = asyncio.ensure_future(_watch(writer))
        telling = asyncio.gather(
            _from_process(process.stdout, Channel.OUTPUT, writer),
            _from_process(process.stderr, Channel.ERRORS, writer),
        )
        try:
            await asyncio.wait((telling, watching), return_when="FIRST_COMPLETED")
            if watching.done():
                watching.result()
            await telling
            code = await process.wait()
            return 128 - code if code < 0 else code
        finally:
            for task in (typing, watching, telling):
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
        raise InvalidRequest("a command must be a JSON list of words of at most 4000 bytes")
    return words


async def _to_process(reader: asyncio.StreamReader, stdin: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while content := await reader.read(PIECE_BYTES):
            stdin.write(content)
            await stdin.drain()
    stdin.close()


async def _from_process(
    output: asyncio.StreamReader, channel: Channel, writer: asyncio.StreamWriter
) -> None:
    while content := await output.read(PIECE_BYTES):
        writer.write(pack(channel, content))
        await writer.drain()


async def _watch(writer: asyncio.StreamWriter) -> None:
    """Raise when the client is gone, even if the command prints nothing."""
    while True:
        await asyncio.sleep(ALIVE_SECONDS)
        writer.write(pack(Channel.ALIVE))
        await writer.drain()
