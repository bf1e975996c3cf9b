"""`bai session exec` and `cp`: commands and files of a running session, without SSH."""

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
from .remote import Remote, running

_PIECE_BYTES = 256 * 1024
_PLACE = re.compile(r"([^/:]+):(.*)", re.DOTALL)
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
    """Run a command in a session, with this terminal's input and output and its exit code.

    For a shell's line: bai session exec NAME sh -c 'ls *.txt'
    """
    # click leaves -- in place: it stands after an argument.
    words = words[1:] if words[0] == "--" else words
    if not words:
        raise click.UsageError("no command: write bai session exec NAME -- COMMAND")
    remote = await running(connection, session)
    if not as_json:
        code = await run(remote, list(words), _copy_stdin, sys.stdout.buffer, sys.stderr.buffer)
        raise click.exceptions.Exit(code)
    out, err = _Kept(), _Kept()
    code = await run(remote, list(words), lambda there: None, out, err)
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
    """Copy a file or folder into a session or out of it; SESSION:PATH is one of a session.

    A TARGET that ends with / or is a folder takes it under its own name.
    """
    there, here = _PLACE.fullmatch(source), _PLACE.fullmatch(target)
    if bool(there) == bool(here):
        raise InvalidRequest("one of SOURCE and TARGET is of a session: write SESSION:PATH")
    if there is not None:
        await _download(await running(connection, there[1]), there[2] or ".", target)
    else:
        assert here is not None
        await _upload(await running(connection, here[1]), Path(source), here[2] or ".")
    output.print_done(
        f"copied {source} to {target}", {"source": source, "target": target}, as_json=as_json
    )


async def run(remote: Remote, words: list[str], feed: Feed, out: BinaryIO, err: BinaryIO) -> int:
    """Run a command in a session and return its exit code; ``feed`` writes what it reads.

    Raises
    ------
    Unavailable
        If the connection ends before the command does.
    """
    target = "exec:" + json.dumps(words)
    if len(target.encode()) > MAX_TEXT_BYTES:
        raise InvalidRequest(f"the command is longer than {MAX_TEXT_BYTES} bytes; use a script")
    ours, theirs = socket.socketpair()
    said: list[str] = []
    with theirs:
        async with remote.tunnel(said.append) as tunnel:
            await tunnel.attach(target, ours)
            threading.Thread(target=_send, args=(theirs, feed), daemon=True).start()
            ending = asyncio.ensure_future(asyncio.to_thread(_receive, theirs, out, err))
            lost = asyncio.ensure_future(tunnel.wait_lost())
            await asyncio.wait((ending, lost), return_when="FIRST_COMPLETED")
            lost.cancel()
            code = await ending  # it ends with the tunnel
    if code is None:
        raise Unavailable(said[-1] if said else "the connection ended before the command did")
    return code


def _send(there: socket.socket, feed: Feed) -> None:
    with contextlib.suppress(OSError, ValueError):
        with there.makefile("wb") as file:
            feed(file)
        there.shutdown(socket.SHUT_WR)


def _receive(there: socket.socket, out: BinaryIO, err: BinaryIO) -> int | None:
    pieces = ChannelReader()
    with contextlib.suppress(ConnectionError, ProtocolError):
        while content := there.recv(_PIECE_BYTES):
            for channel, piece in pieces.feed(content):
                if channel is Channel.EXIT:
                    return int(piece)
                if channel is not Channel.ALIVE:
                    file = out if channel is Channel.OUTPUT else err
                    file.write(piece)
                    file.flush()
    return None


def _copy_stdin(there: BinaryIO) -> None:
    while content := os.read(0, _PIECE_BYTES):
        there.write(content)
        there.flush()


async def _upload(remote: Remote, source: Path, target: str) -> None:
    name = _name_of(source)

    def feed(there: BinaryIO) -> None:
        with tarfile.open(fileobj=there, mode="w|") as archive:
            archive.add(source, arcname=name)

    if not await asyncio.to_thread(source.exists):
        raise InvalidRequest(f"{source} does not exist")
    # A folder takes it under its name, anything else becomes it.
    script = (
        'if [ -d "$2" ]; then exec tar -C "$2" -xf -; fi; '
        'case "$2" in */) mkdir -p "$2" && exec tar -C "$2" -xf -;; esac; '
        'set -e; into=$(mktemp -d -- "$(dirname -- "$2")/.bai-cp-XXXXXX"); '
        'trap \'rm -rf -- "$into"\' EXIT; tar -C "$into" -xf -; mv -T -- "$into/$1" "$2"'
    )
    await _checked(remote, ["sh", "-c", script, "sh", name, target], feed, _Kept())


async def _download(remote: Remote, source: str, target: str) -> None:
    place = Path(target)
    into_folder = target.endswith("/") or await asyncio.to_thread(place.is_dir)
    script = 'cd -- "$(dirname -- "$1")" && exec tar -cf - -- "$(basename -- "$1")"'
    reading, writing = os.pipe()

    def extract() -> None:
        with open(reading, "rb") as file, tarfile.open(fileobj=file, mode="r|") as archive:
            for member in archive:
                if not into_folder:
                    # Only the topmost name changes.
                    rest = PurePosixPath(member.name).parts[1:]
                    member = member.replace(name=str(PurePosixPath(place.name, *rest)), deep=False)
                folder = place if into_folder else place.parent
                folder.mkdir(parents=True, exist_ok=True)
                archive.extract(member, folder, filter="data")

    extracting = asyncio.ensure_future(asyncio.to_thread(extract))
    words = ["sh", "-c", script, "sh", source]
    with os.fdopen(writing, "wb") as file:
        told = await asyncio.gather(
            _checked(remote, words, lambda there: None, file), return_exceptions=True
        )
    came = await asyncio.gather(extracting, return_exceptions=True)
    # A full disk here says most, then why nothing came from there, then that it did not.
    for error in (*(e for e in came if isinstance(e, OSError)), *told, *came):
        if isinstance(error, tarfile.TarError | OSError):
            raise BaiError(f"{source} did not come whole: {error}") from error
        if error is not None:
            raise error


def _name_of(source: Path) -> str:
    return source.resolve().name


async def _checked(remote: Remote, words: list[str], feed: Feed, out: BinaryIO) -> None:
    err = _Kept()
    code = await run(remote, words, feed, out, err)
    if code:
        what = err.text.strip() or f"{shlex.join(words[-2:])} failed with {code}"
        raise BaiError(what, exit_code=code)


class _Kept(io.BytesIO):
    @property
    def text(self) -> str:
        return self.getvalue().decode(errors="replace")
