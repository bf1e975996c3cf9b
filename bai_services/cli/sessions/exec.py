"""`bai session exec` and `cp`: run commands in a session and copy files, without SSH."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import shlex
import socket
import sys
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import click

from bai_services.core.errors import BaiError, InvalidRequest, Unavailable
from bai_services.tunnel.channels import Channel, ChannelReader
from bai_services.tunnel.frames import MAX_TEXT_BYTES, ProtocolError

from .. import output
from ..command import Connection, connected, example, json_option
from .remote import Remote, find_running_session

_CHUNK_BYTES = 256 * 1024
_REMOTE_PATH = re.compile(r"([^/:]+):(.*)", re.DOTALL)
# Function that writes the standard input of a command to a stream.
Feed = Callable[[BinaryIO], None]


@click.command(
    "exec",
    context_settings={"allow_interspersed_args": False},
    epilog=example(
        "bai session exec my-lab nvidia-smi", "bai session exec my-lab -- sh -c 'ls *.txt'"
    ),
)
@click.argument("session")
@click.argument("words", metavar="COMMAND…", nargs=-1, required=True, type=click.UNPROCESSED)
@json_option
@connected
async def exec_(
    connection: Connection, session: str, *, words: tuple[str, ...], as_json: bool
) -> None:
    """Run a command in a session with this terminal's input and output; return its exit code.

    For pipes and wildcards, run a shell: bai session exec NAME sh -c 'ls *.txt'
    """
    # Remove a leading --, because click keeps one that follows an argument.
    words = words[1:] if words[0] == "--" else words
    if not words:
        raise click.UsageError("the command is missing: bai session exec NAME -- COMMAND")
    remote = await find_running_session(connection, session)
    if not as_json:
        code = await run(remote, list(words), _copy_stdin, sys.stdout.buffer, sys.stderr.buffer)
        raise click.exceptions.Exit(code)
    out, err = _Output(), _Output()
    code = await run(remote, list(words), lambda stdin: None, out, err)
    output.print_json({"exit_code": code, "output": out.text, "errors": err.text})
    raise click.exceptions.Exit(code)


@click.command(
    epilog=example("bai session cp notes.txt my-lab:", "bai session cp my-lab:results results/")
)
@click.argument("source")
@click.argument("target")
@json_option
@connected
async def cp(connection: Connection, source: str, target: str, *, as_json: bool) -> None:
    """Copy a file or directory into or out of a session. SESSION:PATH is a path in the session.

    If TARGET is a directory or ends with /, the copy is placed inside it.
    """
    remote_source, remote_target = _REMOTE_PATH.fullmatch(source), _REMOTE_PATH.fullmatch(target)
    if bool(remote_source) == bool(remote_target):
        raise InvalidRequest("exactly one of SOURCE and TARGET must be SESSION:PATH")
    if remote_source is not None:
        remote = await find_running_session(connection, remote_source[1])
        await _download(remote, remote_source[2] or ".", target)
    else:
        assert remote_target is not None
        remote = await find_running_session(connection, remote_target[1])
        await _upload(remote, Path(source), remote_target[2] or ".")
    output.print_done(
        f"copied {source} to {target}", {"source": source, "target": target}, as_json=as_json
    )


async def run(remote: Remote, words: list[str], feed: Feed, out: BinaryIO, err: BinaryIO) -> int:
    """Run a command in a session and return its exit code; ``feed`` writes its standard input.

    Raises
    ------
    InvalidRequest
        If the command is too long.
    Unavailable
        If the connection is lost before the command has finished.
    """
    target = "exec:" + json.dumps(words)
    if len(target.encode()) > MAX_TEXT_BYTES:
        raise InvalidRequest(f"the command is longer than {MAX_TEXT_BYTES} bytes; use a script")
    tunnel_end, our_end = socket.socketpair()
    messages: list[str] = []
    with our_end:
        async with remote.tunnel(messages.append) as tunnel:
            await tunnel.attach(target, tunnel_end)
            threading.Thread(target=_send, args=(our_end, feed), daemon=True).start()
            exit_code = asyncio.ensure_future(asyncio.to_thread(_receive, our_end, out, err))
            lost = asyncio.ensure_future(tunnel.wait_lost())
            await asyncio.wait((exit_code, lost), return_when="FIRST_COMPLETED")
            lost.cancel()
            # This task also completes if the tunnel is lost, because the socket is then closed.
            code = await exit_code
    if code is None:
        raise Unavailable(
            messages[-1] if messages else "the connection was lost before the command finished"
        )
    return code


def _send(connection: socket.socket, feed: Feed) -> None:
    with contextlib.suppress(OSError, ValueError):
        with connection.makefile("wb") as file:
            feed(file)
        connection.shutdown(socket.SHUT_WR)


def _receive(connection: socket.socket, out: BinaryIO, err: BinaryIO) -> int | None:
    """Write the command's output and return its exit code; None if the connection is lost."""
    reader = ChannelReader()
    with contextlib.suppress(ConnectionError, ProtocolError):
        while content := connection.recv(_CHUNK_BYTES):
            for channel, chunk in reader.feed(content):
                if channel is Channel.EXIT:
                    return int(chunk)
                if channel is not Channel.ALIVE:
                    file = out if channel is Channel.OUTPUT else err
                    file.write(chunk)
                    file.flush()
    return None


def _copy_stdin(stdin: BinaryIO) -> None:
    while content := os.read(0, _CHUNK_BYTES):
        stdin.write(content)
        stdin.flush()


async def _upload(remote: Remote, source: Path, target: str) -> None:
    name = _name_of(source)

    def feed(stdin: BinaryIO) -> None:
        with tarfile.open(fileobj=stdin, mode="w|") as archive:
            archive.add(source, arcname=name)

    if not await asyncio.to_thread(source.exists):
        raise InvalidRequest(f"{source} does not exist")
    # If the target is a directory or ends with /, place the copy in it; otherwise rename the copy
    # to the target.
    script = (
        'if [ -d "$2" ]; then exec tar -C "$2" -xf -; fi; '
        'case "$2" in */) mkdir -p "$2" && exec tar -C "$2" -xf -;; esac; '
        'set -e; into=$(mktemp -d -- "$(dirname -- "$2")/.bai-cp-XXXXXX"); '
        'trap \'rm -rf -- "$into"\' EXIT; tar -C "$into" -xf -; mv -T -- "$into/$1" "$2"'
    )
    await _run_checked(remote, ["sh", "-c", script, "sh", name, target], feed, _Output())


async def _download(remote: Remote, source: str, target: str) -> None:
    path = Path(target)
    into_folder = target.endswith("/") or await asyncio.to_thread(path.is_dir)
    script = 'cd -- "$(dirname -- "$1")" && exec tar -cf - -- "$(basename -- "$1")"'
    reading, writing = os.pipe()

    def extract() -> None:
        with open(reading, "rb") as file, tarfile.open(fileobj=file, mode="r|") as archive:
            for member in archive:
                if not into_folder:
                    # Rename only the topmost entry.
                    rest = PurePosixPath(member.name).parts[1:]
                    member = member.replace(name=str(PurePosixPath(path.name, *rest)), deep=False)
                folder = path if into_folder else path.parent
                folder.mkdir(parents=True, exist_ok=True)
                archive.extract(member, folder, filter="data")

    extracting = asyncio.ensure_future(asyncio.to_thread(extract))
    words = ["sh", "-c", script, "sh", source]
    with os.fdopen(writing, "wb") as file:
        remote_errors = await asyncio.gather(
            _run_checked(remote, words, lambda stdin: None, file), return_exceptions=True
        )
    local_errors = await asyncio.gather(extracting, return_exceptions=True)
    # Raise the most specific error: a local error such as a full disk, then the error of the
    # remote tar, then the truncated archive that follows from it.
    os_errors = (error for error in local_errors if isinstance(error, OSError))
    for error in (*os_errors, *remote_errors, *local_errors):
        if isinstance(error, tarfile.TarError | OSError):
            raise BaiError(f"{source} was not copied completely: {error}") from error
        if error is not None:
            raise error


def _name_of(source: Path) -> str:
    return source.resolve().name


async def _run_checked(remote: Remote, words: list[str], feed: Feed, out: BinaryIO) -> None:
    """Run a command in a session.

    Raises
    ------
    BaiError
        If its exit code is not 0; the message is its standard error.
    """
    err = _Output()
    code = await run(remote, words, feed, out, err)
    if code:
        message = err.text.strip() or f"{shlex.join(words[-2:])} failed with exit code {code}"
        raise BaiError(message, exit_code=code)


class _Output(io.BytesIO):
    """The collected output of a command."""

    @property
    def text(self) -> str:
        return self.getvalue().decode(errors="replace")
