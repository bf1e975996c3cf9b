"""Commands that connect to sessions: parsing, host keys, SSH keys and errors."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from bai_services.cli.apps.ssh import index_of_host
from bai_services.cli.apps.ssh_client import SshFiles, proxy_command
from bai_services.cli.sessions.live_output import new_text
from tests.cli.conftest import Bai
from tests.testbed.skip import skip_or_fail


@pytest.mark.parametrize(
    ("words", "index"),
    [
        (["lab"], 0),
        (["-l", "work", "lab", "rsync", "--server"], 2),
        (["-o", "A=b", "-N", "-L8080:localhost:80", "lab"], 4),
        (["-tt", "lab", "-l", "x"], 1),
        (["-vp", "22", "lab"], 2),
        (["-p22", "lab"], 1),
        (["-P", "tag", "lab"], 2),
    ],
)
def test_session_is_the_first_argument_after_the_options(words: list[str], index: int) -> None:
    assert index_of_host(tuple(words)) == index


def test_ssh_without_a_session_is_an_error() -> None:
    with pytest.raises(click.UsageError):
        index_of_host(("-v", "-l", "work"))


@pytest.mark.parametrize(
    ("before", "now", "more"),
    [
        ("", "a\n", "a\n"),
        ("a\n", "a\nb\n", "b\n"),
        ("a\nb\n", "a\nb\n", ""),
        ("a\nb\nc\n" + "x" * 3000, "c\n" + "x" * 3000 + "d\n", "d\n"),
        ("a\n", "something else\n", "something else\n"),
    ],
)
def test_only_new_output_of_a_log_is_returned(before: str, now: str, more: str) -> None:
    assert new_text(before, now) == more


def test_pinned_key_replaces_the_previous_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAI_CONFIG_DIR", str(tmp_path))
    files = SshFiles()
    for host, key in (("Lab.bai", "ssh-ed25519 A"), ("b.bai", "k"), ("lab.bai", "ssh-ed25519 B")):
        files.pin(host, key)
    assert files.known_hosts.read_text() == "b.bai k\nlab.bai ssh-ed25519 B\n"


def test_proxy_command_passes_the_host_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("ssh") is None:
        skip_or_fail("ssh", "it is not installed")
    # OpenSSH expands % sequences in the proxy command and runs it in a shell. Test a path with a
    # space and a % character.
    folder = tmp_path / "100% of it"
    folder.mkdir()
    program = folder / "python"
    program.write_text('#!/bin/sh\necho "$@" > "$(dirname "$0")/arguments"\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    ssh = ("ssh", "-F", "none", "-o", f"ProxyCommand={proxy_command()}", "Lab.bai")
    assert subprocess.run(ssh, capture_output=True).returncode == 255
    arguments = (folder / "arguments").read_text()
    assert arguments == "-m bai_services.cli.main ssh-proxy Lab.bai\n"


async def test_ssh_keys_are_generated_listed_and_deleted(bai: Bai, tmp_path: Path) -> None:
    made = (await bai("ssh-key", "generate", "laptop", "--json", by="user")).document
    assert "PRIVATE KEY" in made["private_key"]
    file = tmp_path / "key"
    assert (await bai("ssh-key", "generate", "home", str(file), by="user")).code == 0
    assert file.stat().st_mode & 0o777 == 0o600
    again = await bai("ssh-key", "generate", "other", str(file), by="user")
    assert again.code == 1 and "already" in again.stderr
    listed = (await bai("ssh-key", "ls", "--json", by="user")).document["items"]
    assert [key["name"] for key in listed] == ["home", "laptop"]
    wrong = await bai("ssh-key", "add", "bad", str(file), "--json", by="user")
    assert wrong.code == 2 and "private key" in wrong.error["message"]
    assert (await bai("ssh-key", "rm", "laptop", by="user")).code == 0
    assert (await bai("ssh-key", "rm", "laptop", by="user")).code == 4


async def test_app_of_missing_or_pending_session_is_an_error(bai: Bai) -> None:
    done = await bai("app", "some", "vscode", "--json", by="user")
    assert done.code == 4
    assert (await bai("session", "create", "waits", by="user")).code == 0
    done = await bai("app", "waits", "vscode", "--json", by="user")
    assert done.code == 1 and "bai session wait waits" in done.error["message"]


@pytest.mark.parametrize(
    "command", [("session", "exec", "job-1", "id"), ("app", "job-1", "vscode"), ("ssh", "job-1")]
)
async def test_pending_batch_session_has_no_ssh_and_no_apps(
    bai: Bai, command: tuple[str, ...]
) -> None:
    created = await bai(
        "session", "create", "job-1", "--type", "batch", "--command", "sleep 9", by="user"
    )
    assert created.code == 0, created.stderr
    done = await bai(*command, by="user")
    assert done.code == 1
    assert "job-1 is PENDING" in done.stderr and "bai session wait job-1" in done.stderr
