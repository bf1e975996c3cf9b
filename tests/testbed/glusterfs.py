"""A GlusterFS server on a node of a cluster, and mounts of its volume on several machines."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.testbed import ComponentMissing
from tests.testbed.nodes import Node
from tests.testbed.wait import wait_until

VOLUME = "shared"
_NEW_NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
# The server's state and its sockets are on file systems that disappear with the mount namespace.
_SERVER = """
set -e
mount -t tmpfs tmpfs /var/lib/glusterd
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/log/glusterfs
exec glusterd -N -L WARNING -p "$1"
"""


# The address of a server that has its own network namespace; the namespace has no other address.
_ADDRESS = "10.99.99.1"
_ALONE = f"""
set -e
ip link set lo up
ip address add {_ADDRESS}/24 dev lo
{_SERVER}
"""


@dataclass(frozen=True)
class Volume:
    """A volume that the nodes of the cluster reach at ``source``."""

    source: str

    def mount(self, path: Path, pid: int | None = None, *, read_only: bool = False) -> None:
        """Mount the volume on this machine, or where the process ``pid`` sees it."""
        options = ["-o", "ro"] if read_only else []
        _run(*_as_seen_by(pid), "mount", "-t", "glusterfs", *options, self.source, str(path))

    def mount_on(self, node: Node, path: Path, *, read_only: bool = False) -> None:
        """Mount the volume for the agent and the engine of a node, which see separate mounts."""
        for pid in (node.agent.pid, node.engine_pid()):
            self.mount(path, pid, read_only=read_only)


def unmount_on(node: Node, path: Path) -> None:
    for pid in (node.agent.pid, node.engine_pid()):
        unmount(path, pid)


def unmount(path: Path, pid: int | None = None) -> None:
    _run(*_as_seen_by(pid), "umount", "--lazy", str(path))


def kill_client(node: Node, path: Path) -> None:
    """Kill the FUSE process of the mount that the agent sees, as a crash does."""
    own = os.readlink(f"/proc/{node.agent.pid}/ns/mnt")
    for process in psutil.process_iter(["name", "cmdline"]):
        is_client = process.info["name"] == "glusterfs" and str(path) in process.info["cmdline"]
        if is_client and os.readlink(f"/proc/{process.pid}/ns/mnt") == own:
            process.kill()
            process.wait(20)


@contextmanager
def serving(node: Node, folder: Path) -> Iterator[Volume]:
    """Yield a volume whose server and files are on ``node``; stop the server at the end.

    Raises
    ------
    ComponentMissing
        If GlusterFS or FUSE is not available.
    """
    enter = ["nsenter", f"--net=/var/run/netns/{node.agent_id}", *_NEW_NAMESPACES]
    with _running([*enter, "sh", "-c", _SERVER], node.address, folder):
        yield Volume(f"{node.address}:/{VOLUME}")


@dataclass(frozen=True)
class QuotaVolume:
    """A volume with quotas.

    ``mounts``: where two clients have mounted it. ``tools``: folder of the program ``gluster``,
    which reaches the server.
    """

    mounts: tuple[Path, Path]
    tools: Path


@contextmanager
def with_quotas(folder: Path) -> Iterator[QuotaVolume]:
    """Yield a volume whose bricks enforce limits immediately.

    Raises
    ------
    ComponentMissing
        If GlusterFS or FUSE is not available.
    """
    command = [*_NEW_NAMESPACES, "--net", "sh", "-c", _ALONE]
    with _running(command, _ADDRESS, folder) as gluster:
        tools = folder / "tools"
        tools.mkdir()
        program = tools / "gluster"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(gluster)} "$@"\n')
        program.chmod(0o755)
        _run(*gluster, "volume", "quota", VOLUME, "enable")
        for name in ("soft", "hard"):
            _run(*gluster, "volume", "set", VOLUME, f"features.{name}-timeout", "0")
        pid = gluster[2]
        mounts = folder / "one", folder / "other"
        try:
            for path in mounts:
                path.mkdir()
                _run(
                    "nsenter",
                    "-t",
                    pid,
                    "-n",
                    "mount",
                    "-t",
                    "glusterfs",
                    f"{_ADDRESS}:/{VOLUME}",
                    str(path),
                )
            yield QuotaVolume(mounts, tools)
        finally:
            for path in mounts:
                if path.is_mount():
                    unmount(path)


@contextmanager
def _running(command: list[str], address: str, folder: Path) -> Iterator[list[str]]:
    """Run a server with a volume; yield the words of ``gluster`` for it."""
    for program in ("glusterd", "gluster", "mount.glusterfs"):
        if shutil.which(program) is None:
            raise ComponentMissing(f"GlusterFS requires {program} (scripts/testbed install)")
    if not Path("/dev/fuse").exists():
        raise ComponentMissing("GlusterFS requires FUSE, which the kernel does not have")
    brick = folder / "brick"
    brick.mkdir()
    with open(folder / "glusterd.log", "wb") as log:
        server = subprocess.Popen(
            [*command, "sh", str(folder / "glusterd.pid")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        (daemon,) = wait_until(lambda: psutil.Process(server.pid).children(), 20, "glusterd")
        gluster = ["nsenter", "-t", str(daemon.pid), "-n", "-m", "-p"]
        # The real program, not the one in the folder of tools.
        gluster += [str(shutil.which("gluster")), "--mode=script"]
        wait_until(lambda: _succeeds(*gluster, "volume", "info"), 60, "glusterd to respond")
        _run(*gluster, "volume", "create", VOLUME, f"{address}:{brick}", "force")
        _run(*gluster, "volume", "start", VOLUME)
        yield gluster
    finally:
        # The process ids of the server and its bricks are in a namespace that ends with it.
        server.send_signal(signal.SIGKILL)
        server.wait(20)


def _as_seen_by(pid: int | None) -> list[str]:
    return [] if pid is None else ["nsenter", "-t", str(pid), "--mount", "--net"]


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True).returncode == 0


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
