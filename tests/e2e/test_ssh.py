"""ssh, scp, sftp and rsync with a session, through the Hub's proxy."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bai_labext.apps.apps import SYSTEM_PATH
from tests.e2e.sessions import start, stop
from tests.e2e.sites import site_of
from tests.e2e.test_tunnel import command
from tests.hub import RunningHub
from tests.testbed.wait import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.docker]

# Set BAI_TEST_TRANSFER_MIB=1024 to test the transfer of 1 GiB.
BIG_BYTES = int(os.environ.get("BAI_TEST_TRANSFER_MIB", "64")) * 2**20
TIMEOUT_SECONDS = 600
NEEDS_RSYNC = pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed")


GATE = """
import os, subprocess, sys, threading, time

real, half, half_file, go = %r, %r, %r, %r
process = subprocess.Popen([*real, *sys.argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def copy(source, target):
    left = half
    while content := os.read(source, 65536):
        size = len(content)
        while content:
            content = content[os.write(target, content):]
        left -= size
        if left <= 0 and not os.path.exists(half_file):
            open(half_file, "x").close()
            while not os.path.exists(go):
                time.sleep(0.05)
    os.close(target)


threading.Thread(target=copy, args=(0, process.stdin.fileno()), daemon=True).start()
copy(process.stdout.fileno(), 1)
sys.exit(process.wait())
"""


class Session:
    """A running session, and a separate configuration folder of ``bai``."""

    def __init__(self, hub: RunningHub, folder: Path) -> None:
        self.hub = hub
        self.folder = folder
        self.rest = hub.rest("user")
        self.row = start(self.rest, f"Ssh-{secrets.token_hex(3)}")
        self.name = self.row["name"]
        self.environ = {
            "BAI_CONFIG_DIR": str(folder / "config"),
            "HOME": str(folder),
            # rsync finds `bai` on PATH.
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }

    def bai(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            **command(self.hub, self.rest, *words, environ=self.environ, **options),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )

    def run_bai(self, *words: str, **options: Any) -> str:
        """Run ``bai``, assert that it succeeds, and return its standard output."""
        run = self.bai(*words, **options)
        assert run.returncode == 0, (words, run.stdout, run.stderr)
        return run.stdout

    def program(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run another program with the same environment."""
        return subprocess.run(
            **self._options(words), capture_output=True, text=True, timeout=TIMEOUT_SECONDS
        )

    def start_program(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        """Start another program with the same environment."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            **self._options(words), stdin=subprocess.DEVNULL, text=True, **pipes, **options
        )

    def _options(self, words: Sequence[str]) -> dict[str, Any]:
        return {**command(self.hub, self.rest, environ=self.environ), "args": list(words)}

    def digest(self, name: str) -> str:
        """Return the checksum of a file in the session's home, computed in the session."""
        return self.run_bai("ssh", self.name, "sha256sum", name).split()[0]

    def size(self, name: str) -> int:
        """Return the size in bytes of a file in the session's home; 0 if it does not exist."""
        text = self.bai("ssh", self.name, "stat", "-c", "%s", name).stdout.strip()
        return int(text) if text.isdecimal() else 0


class Gate:
    """A program that runs ssh, passes on half of the file and then waits for the test.

    The test can thus act in the middle of a transfer, however fast the transfer is.
    """

    def __init__(self, folder: Path, real: Sequence[str]) -> None:
        folder.mkdir()
        self.program = folder / "gate"
        self._half, self._go = folder / "half", folder / "go"
        values = (list(real), BIG_BYTES // 2, str(self._half), str(self._go))
        self.program.write_text(f"#!{sys.executable}\n{GATE % values}")
        self.program.chmod(0o700)

    def wait(self, copying: subprocess.Popen[str]) -> None:
        """Wait until half of the file has passed."""
        wait_until(
            lambda: self._half.exists() or copying.poll() is not None,
            TIMEOUT_SECONDS,
            "half of the file",
        )
        assert copying.poll() is None, copying.communicate()

    def kill_the_proxy_and_pass(self, hub: RunningHub, copying: subprocess.Popen[str]) -> None:
        """When half of the file has passed, let the rest pass and kill the Hub's proxy."""
        self.wait(copying)
        proxy = hub.process_of("proxy")
        self._go.touch()
        proxy.kill()


@pytest.fixture(scope="module")
def session(docker_hub: RunningHub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    running = Session(docker_hub, tmp_path_factory.mktemp("user"))
    yield running
    stop(running.rest, running.row["id"])


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("big") / "big.bin"
    piece = os.urandom(2**20)
    with open(path, "wb") as file:
        for number in range(BIG_BYTES // 2**20):
            file.write(number.to_bytes(8) + piece[8:])
    return path


def finish(copying: subprocess.Popen[str]) -> None:
    """Wait for the end of a transfer and assert that it succeeded."""
    _, errors = copying.communicate(timeout=TIMEOUT_SECONDS)
    assert copying.returncode == 0, errors


def digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def test_ssh_and_sftp_go_through_the_proxy_of_the_site(session: Session, tmp_path: Path) -> None:
    with site_of(session.hub, session.row) as site:
        assert session.run_bai("ssh", session.name, "echo", "in") == "in\n"
        assert site.connections > 0
        before = site.connections
        (tmp_path / "small").write_text("content")
        session.run_bai("scp", str(tmp_path / "small"), f"{session.name}:small")
        assert site.connections > before
    assert session.run_bai("ssh", session.name, "cat", "small") == "content"


@pytest.mark.checklist("SSH-06")
def test_ssh_runs_a_command_in_the_session_environment_and_returns_the_exit_code(
    session: Session,
) -> None:
    text = session.run_bai("ssh", session.name, "id -un; echo $BAI_SESSION_ID; command -v python")
    user, session_id, python = text.split()
    assert (user, session_id) == ("work", session.row["id"])
    assert python == "/opt/bai/bin/python"
    assert session.bai("ssh", session.name, "exit 42").returncode == 42
    assert session.run_bai("ssh", session.name, "cat", input="typed here") == "typed here"


def test_nothing_listens_on_port_22_and_commands_have_no_capabilities(session: Session) -> None:
    text = session.run_bai(
        "ssh", session.name, "grep CapEff /proc/self/status; cat /proc/net/tcp /proc/net/tcp6"
    )
    capabilities, *rest = text.splitlines()
    assert int(capabilities.split()[1], 16) == 0
    listening = [line.split()[1].rpartition(":")[2] for line in rest if " 0A " in line]
    assert "0016" not in listening


def test_scp_survives_a_killed_proxy_in_both_directions(
    session: Session, big: Path, tmp_path: Path
) -> None:
    remote, back = f"{session.name}:copy.bin", tmp_path / "back.bin"
    for number, (source, target) in enumerate(((str(big), remote), (remote, str(back)))):
        gate = Gate(tmp_path / f"gate-{number}", ["ssh"])
        copying = session.start_program("bai", "scp", "-S", str(gate.program), source, target)
        gate.kill_the_proxy_and_pass(session.hub, copying)
        finish(copying)
    assert session.digest("copy.bin") == digest(big)
    assert digest(back) == digest(big)


@NEEDS_RSYNC
def test_rsync_survives_a_killed_proxy_and_resumes_an_interrupted_transfer(
    session: Session, big: Path, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate", ["bai", "ssh"])
    words = ["rsync", "--whole-file", "-e", str(gate.program), str(big)]
    copying = session.start_program(*words, f"{session.name}:synced.bin")
    gate.kill_the_proxy_and_pass(session.hub, copying)
    finish(copying)
    assert session.digest("synced.bin") == digest(big)

    gate = Gate(tmp_path / "gate-of-the-interruption", ["bai", "ssh"])
    words = ["rsync", "--partial", "-e", str(gate.program), str(big), f"{session.name}:cut.bin"]
    copying = session.start_program(*words, start_new_session=True)
    gate.wait(copying)
    os.killpg(copying.pid, signal.SIGINT)
    copying.communicate(timeout=TIMEOUT_SECONDS)
    kept = wait_until(lambda: session.size("cut.bin"), TIMEOUT_SECONDS, "the partial file")
    assert kept < BIG_BYTES
    words = ["rsync", "--append-verify", "--stats", "--no-human-readable", "-e", "bai ssh"]
    done = session.program(*words, str(big), f"{session.name}:cut.bin")
    assert done.returncode == 0, done.stderr
    assert f"Literal data: {BIG_BYTES - kept} bytes" in done.stdout, (kept, done.stdout)
    assert session.digest("cut.bin") == digest(big)


def test_ssh_and_sftp_work_with_the_output_of_ssh_config(session: Session, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(session.run_bai("ssh-config"))
    host = f"{session.name}.bai"
    done = session.program("ssh", "-F", str(config), host, "echo", "hello")
    assert done.stdout == "hello\n", done.stderr
    batch = tmp_path / "batch"
    batch.write_text(f"put {config} there.txt\nget there.txt {tmp_path / 'back.txt'}\n")
    done = session.program("sftp", "-F", str(config), "-b", str(batch), host)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "back.txt").read_text() == config.read_text()
    items = json.loads(session.run_bai("ssh-config", session.name, "--json"))["items"]
    assert items[0]["Host"] == host and items[0]["User"] == "work"


def test_proxy_command_exits_on_sighup_and_ends_the_ssh_server(session: Session) -> None:
    def servers() -> int:
        text = session.run_bai("ssh", session.name, "cat /proc/[0-9]*/comm")
        return text.split().count("sshd")

    before = servers()
    proxy = subprocess.Popen(
        **command(session.hub, session.rest, "ssh-proxy", session.name, environ=session.environ),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with proxy:
        assert proxy.stdout is not None
        assert proxy.stdout.readline().startswith(b"SSH-2.0")
        assert servers() > before
        # When ssh exits, it sends SIGHUP to its proxy command.
        proxy.send_signal(signal.SIGHUP)
        proxy.stdout.read()
    assert proxy.returncode == 0
    wait_until(lambda: servers() == before, 60, "the exit of the SSH server")


def test_the_pinned_host_key_cannot_be_overridden(session: Session) -> None:
    session.run_bai("ssh", session.name, "true")
    known = Path(session.environ["BAI_CONFIG_DIR"]) / "ssh" / "known_hosts"
    (line,) = known.read_text().splitlines()
    assert line.startswith(f"{session.name.lower()}.bai ssh-ed25519 ")
    other = session.folder / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    forged = session.folder / "forged"
    forged.write_text(f"{session.name.lower()}.bai {other.with_suffix('.pub').read_text()}")
    done = session.bai("ssh", "-o", f"UserKnownHostsFile={forged}", session.name, "true")
    # ssh uses the first value of an option, so the command line cannot override bai's value.
    assert done.returncode == 0


def test_a_removed_key_is_rejected_immediately(session: Session, tmp_path: Path) -> None:
    session.run_bai("ssh-key", "generate", "laptop", str(tmp_path / "laptop"))
    words = [
        "ssh",
        "-i",
        str(tmp_path / "laptop"),
        "-o",
        "IdentitiesOnly=yes",
        session.name,
        "true",
    ]
    session.run_bai(*words)
    names = [k["name"] for k in json.loads(session.run_bai("ssh-key", "ls", "--json"))["items"]]
    assert "laptop" in names
    config = tmp_path / "config"
    text = session.run_bai("ssh-config", session.name)
    ours = next(line for line in text.splitlines() if "IdentityFile" in line)
    config.write_text(text.replace(ours, f"    IdentityFile {tmp_path / 'laptop'}\n"
                                         "    IdentitiesOnly yes"))  # fmt: skip
    plain = ["ssh", "-F", str(config), "-o", "BatchMode=yes", f"{session.name}.bai", "true"]
    assert session.program(*plain).returncode == 0
    session.run_bai("ssh-key", "rm", "laptop")
    refused = session.program(*plain)
    assert refused.returncode == 255 and "Permission denied" in refused.stderr


def test_other_users_cannot_reach_the_ssh_server(session: Session) -> None:
    for name in ("user2", "admin"):
        rest = session.hub.rest(name)
        done = subprocess.run(
            **command(session.hub, rest, "ssh-proxy", session.row["id"], environ=session.environ),
            capture_output=True, text=True, timeout=TIMEOUT_SECONDS, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode in (4, 5), done
        assert "SSH-2.0" not in done.stdout


@pytest.mark.skipif(
    shutil.which("sshd", path=f"{os.environ['PATH']}:{SYSTEM_PATH}") is None,
    reason="sshd is not installed",
)
def test_ssh_works_with_the_process_engine(hub: RunningHub, tmp_path: Path) -> None:
    """The SSH server is the OpenSSH of the test machine and runs with the uid of the session."""
    session = Session(hub, tmp_path)
    assert session.run_bai("ssh", session.name, "echo $BAI_SESSION_ID").strip() == session.row["id"]
    source = tmp_path / "some.bin"
    source.write_bytes(os.urandom(2**20))
    session.run_bai("scp", str(source), f"{session.name}:copy.bin")
    assert session.digest("copy.bin") == digest(source)
    done = session.run_bai("ssh", "-tt", session.name, "tty")
    assert done.startswith("/dev/pts/")
    stop(session.rest, session.row["id"])
