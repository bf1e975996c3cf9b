"""The state folder with its secrets and ports, and `exit_with_parent`."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
from cryptography.fernet import Fernet

from bai_services.home import PORT_OFFSETS, Home
from bai_services.system.ports import is_free
from tests.testbed.ports import free_port
from tests.testbed.wait import wait_until


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folder_and_secrets_are_readable_by_the_owner_only(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        home = Home(tmp_path / "state" / "home")
        files = [home.secret("hub-token"), home.database("jupyterhub.sqlite")]
    finally:
        os.umask(old)
    assert [mode_of(file) for file in files] == [0o600, 0o600]
    assert mode_of(home.path) == mode_of(files[0].parent) == 0o700


def test_secret_is_stable_and_a_fernet_key(tmp_path: Path) -> None:
    first = Home(tmp_path).secret("key").read_text()
    assert Home(tmp_path).secret("key").read_text() == first
    assert Home(tmp_path).secret("other").read_text() != first
    Fernet(first)


def test_concurrent_calls_return_the_same_secret(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        texts = set(pool.map(lambda _: home.secret("race").read_text(), range(64)))
    assert len(texts) == 1
    assert [file.name for file in (tmp_path / "secrets").iterdir()] == ["race"]


def test_concurrent_installations_share_no_port(tmp_path: Path) -> None:
    # The public ports are so close that the two installations prefer some of the same ports.
    public = free_port()
    homes = [(Home(tmp_path / "a"), public), (Home(tmp_path / "b"), public + 10)]
    preferred = [public + offset for offset in PORT_OFFSETS.values()]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda pair: pair[0].ports(pair[1]), homes))
    # The third installation prefers the ports of the first, on which no server listens yet.
    found.append(Home(tmp_path / "c").ports(public))
    ports = [port for one in found for port in one.values()]
    assert len(set(ports)) == len(ports), (preferred, found)


def test_ports_are_distinct_and_stable(tmp_path: Path) -> None:
    public = free_port()
    ports = Home(tmp_path).ports(public)
    assert ports.keys() == PORT_OFFSETS.keys()
    assert len({public, *ports.values()}) == len(ports) + 1
    assert Home(tmp_path).ports(public) == ports


def test_port_used_by_another_process_is_replaced(tmp_path: Path) -> None:
    public = free_port()
    before = Home(tmp_path).ports(public)
    with socket.socket() as other:
        other.bind(("127.0.0.1", before["manager"]))
        other.listen()
        after = Home(tmp_path).ports(public)
        assert after["manager"] != before["manager"]
        assert is_free(after["manager"])
    assert Home(tmp_path).ports(public) == after


def test_ports_are_valid_for_the_highest_public_port(tmp_path: Path) -> None:
    ports = Home(tmp_path).ports(65535)
    assert all(0 < port < 65535 for port in ports.values())


PARENT = """
import subprocess, sys
command = [sys.executable, "-m", "bai_services.system.exit_with_parent", *sys.argv[1:]]
child = subprocess.Popen(command)
print(child.pid, flush=True)
child.wait()
"""


def test_module_ends_when_its_parent_is_killed() -> None:
    words = [sys.executable, "-c", PARENT, "http.server", "0", "--bind", "127.0.0.1"]
    parent = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert parent.stdout is not None
    with parent, parent.stdout:
        child = psutil.Process(int(parent.stdout.readline()))
        wait_until(lambda: child.net_connections(), 20, "the server to listen")
        parent.send_signal(signal.SIGKILL)
        parent.wait(10)
        gone = wait_until(
            lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE,
            15,
            "the server to exit",
        )
    assert gone


def test_module_gets_its_arguments_and_passes_on_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("import sys; print(sys.argv[1:]); sys.exit(7)")
    done = subprocess.run(
        [sys.executable, "-m", "bai_services.system.exit_with_parent", "module", "a", "--b"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout.strip()) == (7, "['a', '--b']")
