"""`bai ssh`, `bai scp`, `bai ssh-config`, `bai ssh-proxy`: OpenSSH's own programs into sessions."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import threading
from collections.abc import Callable

import click

from .. import output
from ..command import Connection, connected, example, json_option
from ..sessions.remote import running
from .ssh_client import SshFiles, host_of, prepare, run, session_of, words_of

_PASSED = {"ignore_unknown_options": True, "allow_interspersed_args": False}
# What scp takes for another machine's file: a colon before any slash.
_REMOTE = re.compile(r"([^/:-][^/:]*):(.*)", re.DOTALL)
_PIECE_BYTES = 256 * 1024


@click.command(
    context_settings=_PASSED,
    epilog=example(
        "bai ssh my-lab", "bai ssh my-lab nvidia-smi", "rsync -e 'bai ssh' data.csv my-lab:data.csv"
    ),
)
@click.argument("words", metavar="[OPTION…] SESSION [COMMAND…]", nargs=-1, required=True,
                type=click.UNPROCESSED)  # fmt: skip
@connected
async def ssh(connection: Connection, words: tuple[str, ...]) -> None:
    """Sign in to a session with OpenSSH's ssh, or run a command there; options are ssh's own.

    For rsync: rsync -e 'bai ssh' FILE SESSION:FILE
    """
    place = index_of_host(words)
    remote = await running(connection, session_of(words[place]))
    found = await prepare(connection, remote)
    options = words_of(SshFiles().options(found["user"]))
    run("ssh", [*options, *words[:place], found["host"], *words[place + 1 :]])


@click.command(context_settings=_PASSED, epilog=example("bai scp data.csv my-lab:data.csv"))
@click.argument("words", metavar="[OPTION…] FILE… FILE", nargs=-1, required=True,
                type=click.UNPROCESSED)  # fmt: skip
@connected
async def scp(connection: Connection, words: tuple[str, ...]) -> None:
    """Copy files with OpenSSH's scp; SESSION:PATH is a file of a session."""
    passed, user = [], ""
    for word in words:
        match = _REMOTE.fullmatch(word)
        if match is None:
            passed.append(word)
            continue
        found = await prepare(connection, await running(connection, session_of(match[1])))
        user = found["user"]
        passed.append(f"{found['host']}:{match[2]}")
    if not user:
        raise click.UsageError("no file is of a session: write SESSION:PATH")
    run("scp", [*words_of(SshFiles().options(user)), *passed])


@click.command("ssh-config", epilog=example("bai ssh-config >> ~/.ssh/config"))
@click.argument("sessions", metavar="[SESSION…]", nargs=-1)
@json_option
@connected
async def ssh_config(connection: Connection, sessions: tuple[str, ...], *, as_json: bool) -> None:
    """Print what ~/.ssh/config needs so that ssh, sftp, rsync and VS Code find sessions.

    Without SESSION it is for every session, as SESSION.bai, signed in as work.
    """
    files = SshFiles()
    hosts = []
    for name in sessions:
        found = await prepare(connection, await running(connection, name))
        hosts.append({"Host": found["host"], **files.options(found["user"])})
    if not sessions:
        await files.ensure_key(connection)
        hosts.append({"Host": "*.bai", **files.options("work")})
    if as_json:
        output.print_json({"items": hosts})
        return
    for host in hosts:
        name = host.pop("Host")
        click.echo(f"Host {name}")
        for option, value in host.items():
            click.echo(f"    {option} {value}")


@click.command("ssh-proxy", epilog=example("bai ssh-proxy my-lab.bai"))
@click.argument("host")
@connected
async def ssh_proxy(connection: Connection, host: str) -> None:
    """Join standard input and output with a session's SSH server: OpenSSH's ProxyCommand."""
    remote = await running(connection, session_of(host))
    told = await remote.ask("GET", "bai/api/ssh")
    # Before OpenSSH hears of the server at all, so that it looks it up among the known ones.
    SshFiles().pin(host_of(remote.session["name"]), told["host_key"])
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    # ssh's way to say that it has ended; the session need not wait for a return then.
    for number in (signal.SIGHUP, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)

    def finish() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            loop.call_soon_threadsafe(ended.set)

    with theirs:
        async with remote.tunnel() as tunnel:
            await tunnel.attach("ssh", ours)
            threading.Thread(target=_from_stdin, args=(theirs,), daemon=True).start()
            threading.Thread(target=_to_stdout, args=(theirs, finish), daemon=True).start()
            lost = asyncio.ensure_future(tunnel.wait_lost())
            waiting = asyncio.ensure_future(ended.wait())
            await asyncio.wait((lost, waiting), return_when="FIRST_COMPLETED")
            if lost.done():
                lost.result()
            lost.cancel()
            waiting.cancel()


def index_of_host(words: tuple[str, ...]) -> int:
    """Return where among ssh's words the host stands: the first that is no option or its value."""
    place = 0
    while place < len(words) and words[place].startswith("-"):
        # Of the letters in one word, the first that takes a value takes the rest, or the next word.
        letters = words[place][1:]
        with_value = [n for n, letter in enumerate(letters) if letter in "BbcDEeFIiJLlmOopQRSWw"]
        place += 2 if with_value and with_value[0] == len(letters) - 1 else 1
    if place >= len(words):
        raise click.UsageError("name a session")
    return place


def _from_stdin(there: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while content := os.read(0, _PIECE_BYTES):
            there.sendall(content)
        there.shutdown(socket.SHUT_WR)


def _to_stdout(there: socket.socket, finish: Callable[[], None]) -> None:
    with contextlib.suppress(OSError):
        while content := there.recv(_PIECE_BYTES):
            view = memoryview(content)
            while view:
                view = view[os.write(1, view) :]
    finish()
