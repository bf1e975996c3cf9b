"""`bai ssh`, `scp`, `ssh-config` and `ssh-proxy`: connect to sessions with OpenSSH."""

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
from ..sessions.remote import find_running_session
from .ssh_client import SshFiles, host_of, option_words, prepare, run, session_of

# Options except -h and --help are passed to OpenSSH, not parsed by click.
_PASS_THROUGH = {"ignore_unknown_options": True, "allow_interspersed_args": False}
# A remote path, by the rule of scp: a colon before any slash.
_REMOTE_PATH = re.compile(r"([^/:-][^/:]*):(.*)", re.DOTALL)
_CHUNK_BYTES = 256 * 1024


@click.command(
    context_settings=_PASS_THROUGH,
    epilog=example(
        "bai ssh my-lab", "bai ssh my-lab nvidia-smi", "rsync -e 'bai ssh' data.csv my-lab:data.csv"
    ),
)
@click.argument("words", metavar="[OPTION…] SESSION [COMMAND…]", nargs=-1, required=True,
                type=click.UNPROCESSED)  # fmt: skip
@connected
async def ssh(connection: Connection, words: tuple[str, ...]) -> None:
    """Open a shell in a session with OpenSSH's ssh, or run a command. OPTION is any option of ssh.

    For rsync: rsync -e 'bai ssh' FILE SESSION:FILE
    """
    index = index_of_host(words)
    remote = await find_running_session(connection, session_of(words[index]))
    server = await prepare(connection, remote)
    options = option_words(SshFiles().options(server.user))
    run("ssh", [*options, *words[:index], server.host, *words[index + 1 :]])


@click.command(context_settings=_PASS_THROUGH, epilog=example("bai scp data.csv my-lab:data.csv"))
@click.argument("words", metavar="[OPTION…] FILE… FILE", nargs=-1, required=True,
                type=click.UNPROCESSED)  # fmt: skip
@connected
async def scp(connection: Connection, words: tuple[str, ...]) -> None:
    """Copy files with OpenSSH's scp; write SESSION:PATH for a file in a session."""
    arguments, user = [], ""
    for word in words:
        match = _REMOTE_PATH.fullmatch(word)
        if match is None:
            arguments.append(word)
            continue
        server = await prepare(
            connection, await find_running_session(connection, session_of(match[1]))
        )
        user = server.user
        arguments.append(f"{server.host}:{match[2]}")
    if not user:
        raise click.UsageError("no argument is a file in a session; write SESSION:PATH")
    run("scp", [*option_words(SshFiles().options(user)), *arguments])


@click.command("ssh-config", epilog=example("bai ssh-config >> ~/.ssh/config"))
@click.argument("sessions", metavar="[SESSION…]", nargs=-1)
@json_option
@connected
async def ssh_config(connection: Connection, sessions: tuple[str, ...], *, as_json: bool) -> None:
    """Print a section for ~/.ssh/config: ssh, sftp, rsync and VS Code then connect to SESSION.bai.

    Without SESSION, the section applies to all sessions, and the user name is 'work'.
    """
    files = SshFiles()
    hosts = []
    for name in sessions:
        server = await prepare(connection, await find_running_session(connection, name))
        hosts.append({"Host": server.host, **files.options(server.user)})
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
    """Connect standard input and output to the SSH server of a session, as ssh's ProxyCommand."""
    remote = await find_running_session(connection, session_of(host))
    server = await remote.request("GET", "bai/api/ssh")
    # Pin the host key before connecting: OpenSSH reads known_hosts during the handshake.
    SshFiles().pin(host_of(remote.session["name"]), server["host_key"])
    tunnel_end, our_end = socket.socketpair()
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    # ssh ends its ProxyCommand with a signal.
    for number in (signal.SIGHUP, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)

    def finish() -> None:
        with contextlib.suppress(RuntimeError):  # the event loop has already stopped
            loop.call_soon_threadsafe(ended.set)

    with our_end:
        async with remote.tunnel() as tunnel:
            await tunnel.attach("ssh", tunnel_end)
            threading.Thread(target=_copy_stdin, args=(our_end,), daemon=True).start()
            threading.Thread(target=_copy_to_stdout, args=(our_end, finish), daemon=True).start()
            lost = asyncio.ensure_future(tunnel.wait_lost())
            end = asyncio.ensure_future(ended.wait())
            await asyncio.wait((lost, end), return_when="FIRST_COMPLETED")
            if lost.done():
                lost.result()
            lost.cancel()
            end.cancel()


def index_of_host(words: tuple[str, ...]) -> int:
    """Return the index of the host in the arguments of ssh: the first argument after the options.

    Raises
    ------
    click.UsageError
        If there is no host.
    """
    index = 0
    while index < len(words) and words[index].startswith("-"):
        # A word can combine options, such as -vp22. The first letter that takes a value is the last
        # option of the word. Its value is the rest of the word; if that is empty, the next word.
        letters = words[index][1:]
        with_value = [n for n, letter in enumerate(letters) if letter in "BbcDEeFIiJLlmOoPpQRSWw"]
        index += 2 if with_value and with_value[0] == len(letters) - 1 else 1
    if index >= len(words):
        raise click.UsageError("the session is missing: bai ssh SESSION")
    return index


def _copy_stdin(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while content := os.read(0, _CHUNK_BYTES):
            connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)


def _copy_to_stdout(connection: socket.socket, finish: Callable[[], None]) -> None:
    with contextlib.suppress(OSError):
        while content := connection.recv(_CHUNK_BYTES):
            view = memoryview(content)
            while view:
                view = view[os.write(1, view) :]
    finish()
