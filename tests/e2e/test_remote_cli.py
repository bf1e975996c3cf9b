"""`bai session exec`, `cp`, `top`, `logs`, `events` and `attach`; completion in real shells."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import secrets
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bai_services.client import Client, Keypair
from tests.e2e.sessions import start, stop
from tests.e2e.test_tunnel import command
from tests.hub import RunningHub

pytestmark = pytest.mark.e2e

TIMEOUT_SECONDS = 200


@pytest.fixture(scope="module")
def rest(hub: RunningHub) -> httpx.Client:
    return hub.rest("user")


@pytest.fixture(scope="module")
def session(hub: RunningHub, rest: httpx.Client) -> Iterator[str]:
    row = start(rest, f"cli-{secrets.token_hex(3)}")
    yield row["name"]
    stop(rest, row["id"])


@pytest.fixture
def bai(hub: RunningHub, rest: httpx.Client) -> Any:
    def run(*words: str, content: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            **command(hub, rest, *words),
            input=content,
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
        )

    return run


def test_exec_forwards_input_output_and_exit_code(bai: Any, session: str) -> None:
    content = os.urandom(700_000)
    done = bai("session", "exec", session, "cat", content=content)
    assert (done.returncode, done.stdout, done.stderr) == (0, content, b"")
    done = bai("session", "exec", session, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"out\n", b"err\n")
    assert bai("session", "exec", session, "no-such-program").returncode == 127
    done = bai("session", "exec", "--json", session, "sh", "-c", "pwd; exit 3")
    assert done.returncode == 3
    assert json.loads(done.stdout)["exit_code"] == 3


def keypair_of(rest: httpx.Client) -> Keypair:
    """Renew the secret key of the user's first keypair and return the keypair."""
    key = rest.get("/me").json()["keypairs"][0]
    changed = rest.patch(f"/keypairs/{key}", json={"new_secret": True}).json()
    return Keypair(key, changed["secret_key"])


def test_a_keypair_gets_a_token_that_is_valid_only_for_one_session_of_the_user(
    hub: RunningHub, rest: httpx.Client, session: str
) -> None:
    def run_exec(rest: httpx.Client, keypair: Keypair) -> subprocess.CompletedProcess[str]:
        environ = {
            "BAI_TOKEN": "",
            "BAI_ACCESS_KEY": keypair.access_key,
            "BAI_SECRET_KEY": keypair.secret_key,
        }
        words = command(hub, rest, "session", "exec", row["id"], "echo", "in", environ=environ)
        return subprocess.run(**words, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)

    row = rest.get(f"/sessions/{session}").json()
    mine, admin = keypair_of(rest), hub.rest("admin")
    done = run_exec(rest, mine)
    assert (done.returncode, done.stdout) == (0, "in\n"), done.stderr
    refused = run_exec(admin, keypair_of(admin))
    assert refused.returncode == 5, refused.stderr

    async def token() -> dict[str, Any]:
        async with Client(hub.api.removesuffix("/api/v1"), mine) as client:
            response: dict[str, Any] = await client.post(f"/sessions/{row['id']}/token")
            return response

    response = asyncio.run(token())
    assert 0 < response["expires_in_seconds"] <= 3600
    headers = {"Authorization": f"token {response['token']}"}

    def status(path: str) -> int:
        return httpx.get(hub.url + path, headers=headers, timeout=60).status_code

    assert status(row["url"] + "api/status") == 200
    assert status("/services/bai/api/v1/me") == 401
    assert status("/hub/api/users/user/tokens") in (403, 404)
    more = httpx.post(f"{hub.url}/hub/api/users/user/tokens", headers=headers, json={}, timeout=60)
    assert more.status_code in (403, 404)
    # A caller that signs in with a token gets no session token, because the session token could
    # outlive the caller's token.
    assert rest.post(f"/sessions/{row['id']}/token").status_code == 403


def test_cp_copies_files_and_folders_in_both_directions(
    bai: Any, session: str, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a b.bin").write_bytes(os.urandom(400_000))
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)

    def copy(source: str, target: str) -> None:
        done = bai("session", "cp", source, target)
        assert done.returncode == 0, done.stderr

    copy(str(folder), f"{session}:there")
    copy(f"{session}:there", str(tmp_path / "back"))
    copy(f"{session}:there/deep/a b.bin", str(tmp_path / "one.bin"))
    copy(str(folder / "run.sh"), f"{session}:there/deep/")
    expected = (folder / "deep" / "a b.bin").read_bytes()
    assert (tmp_path / "back" / "deep" / "a b.bin").read_bytes() == expected
    assert (tmp_path / "one.bin").read_bytes() == expected
    assert os.access(tmp_path / "back" / "run.sh", os.X_OK)
    listed = bai("session", "exec", session, "ls", "there/deep").stdout.decode()
    assert listed.splitlines() == ["a b.bin", "run.sh"]
    missing = bai("session", "cp", f"{session}:nowhere", str(tmp_path / "x"))
    assert missing.returncode == 1 and b"nowhere" in missing.stderr
    assert bai("session", "cp", "a", "b").returncode == 2


def test_top_and_logs_show_usage_and_log(bai: Any, session: str) -> None:
    (item,) = json.loads(bai("session", "top", session, "--json").stdout)["items"]
    assert item["session"] == session and item["kernels"]
    assert session.encode() in bai("session", "top", "--once").stdout
    assert bai("session", "logs", session).returncode == 0


def test_logs_and_events_of_a_batch_session_are_followed_to_the_end(
    hub: RunningHub, rest: httpx.Client, bai: Any
) -> None:
    name = f"batch-{secrets.token_hex(3)}"
    body = {
        "name": name, "project": "default", "type": "batch",
        "resources": {"cpu": "1", "mem": "256m"},
        "startup_command": "for n in 1 2 3; do echo line $n; sleep 1; done",
    }  # fmt: skip
    assert rest.post("/sessions", json=body).status_code == 201
    events = subprocess.Popen(
        **command(hub, rest, "session", "events", name, "--until-end", "--json"),
        stdout=subprocess.PIPE,
    )
    followed = bai("session", "logs", "--follow", name)
    assert followed.returncode == 0, followed.stderr
    for number in (1, 2, 3):
        assert followed.stdout.count(b"line %d\n" % number) == 1, followed.stdout
    response, _ = events.communicate(timeout=TIMEOUT_SECONDS)
    assert json.loads(response.splitlines()[-1])["status"] == "TERMINATED"
    # A client that connects after the end also gets the last event.
    late = bai("session", "events", name, "--until-end", "--json")
    assert json.loads(late.stdout)["status"] == "TERMINATED"


# For each shell: options for a start without user settings, and the command that enables
# completion.
SHELLS = {
    "bash": ("--norc --noprofile -i", 'eval "$(bai completion bash)"'),
    "zsh": ("-f -i", 'autoload -Uz compinit; compinit -D -u; eval "$(bai completion zsh)"'),
}


def in_shell(
    hub: RunningHub, rest: httpx.Client, home: Path, shell: str, *words: str
) -> dict[str, Any]:
    """Return `subprocess` arguments that run a shell with ``bai`` on its PATH."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {"PATH": path, "HOME": str(home), "PS1": "go> ", "TERM": "xterm"}
    return {**command(hub, rest, environ=environ), "args": [shell, *words]}


@pytest.mark.parametrize("shell", SHELLS)
def test_bash_and_zsh_complete_commands(
    hub: RunningHub, rest: httpx.Client, tmp_path: Path, shell: str
) -> None:
    options, prepare = SHELLS[shell]
    terminal = Terminal(in_shell(hub, rest, tmp_path, shell, *options.split()))
    terminal.until("go> ")
    terminal.type(f"{prepare}; echo pre''pared\r")
    terminal.until("prepared")
    terminal.until("go> ")
    terminal.type("bai session atta\t--help\r")
    terminal.until("Usage: bai session attach")
    terminal.until("go> ")
    terminal.type("exit\r")
    assert terminal.end() == 0


def test_fish_completes_commands(hub: RunningHub, rest: httpx.Client, tmp_path: Path) -> None:
    asked = "bai completion fish | source; complete -C 'bai session atta'"
    words = in_shell(hub, rest, tmp_path, "fish", "--no-config", "-c", asked)
    done = subprocess.run(**words, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    assert done.stdout.split()[:1] == ["attach"], done


class Terminal:
    """A command in a pseudo-terminal."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._number, there = pty.openpty()
        self.resize(40, 100)
        # Set another size in the environment. The size of the terminal must take precedence.
        options["env"] |= {"COLUMNS": "80", "LINES": "24"}
        # Make the pseudo-terminal the controlling terminal, so that the process gets SIGWINCH.
        self._process = subprocess.Popen(**options, preexec_fn=lambda: os.login_tty(there))
        os.close(there)
        self._shown = ""

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self._number, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._number, text.encode())

    def until(self, text: str) -> str:
        """Read until ``text`` is shown, and return the output before it.

        The next call reads from the end of ``text``.
        """
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while text not in self._shown:
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self._number], [], [], left)[0], self._shown
            try:
                self._shown += os.read(self._number, 4096).decode(errors="replace")
            except OSError:
                raise AssertionError(f"ended with {self._shown!r}") from None
        before, _, self._shown = self._shown.partition(text)
        return before

    def end(self) -> int:
        code = self._process.wait(TIMEOUT_SECONDS)
        os.close(self._number)
        return code


def test_a_terminal_is_attached_resized_detached_and_reattached(
    hub: RunningHub, rest: httpx.Client, session: str
) -> None:
    first = Terminal(command(hub, rest, "session", "attach", session))
    # Wait for the prompt, because the shell can drop earlier input.
    first.until("$ ")
    # The terminal echoes the input, which must not contain the expected text. Therefore the text is
    # split; the shell joins the two halves.
    first.type("stty size | sed 's/^/si''ze /'; keep=this\r")
    first.until("size 40 100")
    first.resize(30, 90)
    first.type("while [ \"$(stty size)\" != '30 90' ]; do sleep 0.1; done; echo re''sized\r")
    first.until("resized")
    first.until("$ ")
    # Print and sleep in one command, because input between two commands could be lost.
    first.type("sh -c \"echo slee''ping; exec sleep 1000\"\r")
    first.until("sleeping")
    first.type("\x03")
    # Wait for the prompt: the shell would discard earlier input with the interrupted command.
    first.until("$ ")
    first.type("echo inter''rupted\r")
    first.until("interrupted")
    first.type("\x1d")
    first.until("reattach with: bai ")
    words = first.until("\r\n").split()
    assert first.end() == 0

    second = Terminal(command(hub, rest, *words))
    second.until("$ ")
    second.type("echo kept $keep''.\r")
    second.until("kept this.")
    second.type("exit\r")
    second.until("has ended")
    assert second.end() == 0


def test_attach_without_a_terminal_suggests_exec(bai: Any, session: str) -> None:
    done = bai("session", "attach", session)
    assert done.returncode == 2 and b"session exec" in done.stderr
