"""A Docker Swarm on this machine: engines that each have a network namespace of their own."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.testbed import PartMissing
from tests.testbed.docker_engine import DockerEngine, answers
from tests.testbed.wait import wait_until

# The engine sees the network of its namespace in /sys and finds the cgroups where they were. What
# it keeps is in memory: thousands of files that nobody has to remove.
_ENGINE = """
set -e
hostname {name}
mkdir {folder}/cgroup {folder}/data
mount -t tmpfs tmpfs {folder}/data
mount --rbind /sys/fs/cgroup {folder}/cgroup
mount -t sysfs sysfs /sys
mount --rbind {folder}/cgroup /sys/fs/cgroup
exec dockerd --data-root {folder}/data --exec-root {folder}/exec -H {host} -p {folder}/pid
"""


@contextmanager
def running(size: int) -> Iterator[list[DockerEngine]]:
    """Give the engines of a Swarm, its one manager first; nothing is left of them.

    Raises
    ------
    PartMissing
        If there are no engines to start, or no right to give them networks.
    """
    for program in ("dockerd", "ip", "iptables", "nsenter", "unshare"):
        if shutil.which(program) is None:
            raise PartMissing(f"a Swarm needs {program} (scripts/testbed install)")
    if os.geteuid() != 0:
        raise PartMissing("a Swarm on one machine needs root")
    token = secrets.token_hex(3)
    # Addresses for measurements: no network that anybody uses has them.
    prefix = f"198.18.{int(token[:2], 16)}"
    with ExitStack() as stack:
        home = Path(tempfile.mkdtemp(prefix=f"bai-swarm-{token}-"))
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        try:
            _make_bridge(stack, f"bai{token}", f"{prefix}.1/24")
            engines = [_node(stack, home, token, prefix, n) for n in range(1, size + 1)]
            engines[0].run("swarm", "init", "--advertise-addr", f"{prefix}.11")
            key = engines[0].run("swarm", "join-token", "-q", "worker")
            for n, engine in enumerate(engines[1:], start=12):
                join = ["--token", key, "--advertise-addr", f"{prefix}.{n}", f"{prefix}.11:2377"]
                engine.run("swarm", "join", *join)
        except (subprocess.CalledProcessError, RuntimeError, TimeoutError) as error:
            raise PartMissing(f"no Swarm can be made here: {error}") from error
        yield engines


def copy_image(name: str, source: DockerEngine, target: DockerEngine) -> None:
    """Bring an image from one engine to another."""
    save = subprocess.Popen(["docker", "-H", source.host, "save", name], stdout=subprocess.PIPE)
    subprocess.run(
        ["docker", "-H", target.host, "load", "-q"], stdin=save.stdout, check=True, text=True
    )
    assert save.stdout is not None
    save.stdout.close()
    assert save.wait(60) == 0


def _make_bridge(stack: ExitStack, bridge: str, address: str) -> None:
    _run("ip", "link", "add", bridge, "type", "bridge")
    stack.callback(_run, "ip", "link", "delete", bridge)
    _run("ip", "address", "add", address, "dev", bridge)
    _run("ip", "link", "set", bridge, "up")
    # Docker sets the policy of FORWARD to DROP, which also applies to bridged frames.
    rule = ["FORWARD", "-i", bridge, "-o", bridge, "-j", "ACCEPT"]
    _run("iptables", "-w", "-I", *rule)
    stack.callback(_run, "iptables", "-w", "-D", *rule)


def _node(stack: ExitStack, home: Path, token: str, prefix: str, number: int) -> DockerEngine:
    """Start an engine in a namespace of its own and return it when it answers."""
    name, folder = f"bai{token}-{number}", home / str(number)
    folder.mkdir()
    _run("ip", "netns", "add", name)
    stack.callback(_run, "ip", "netns", "delete", name)
    # Gone with its other end, which the namespace has.
    here = f"v{token}-{number}"
    _run("ip", "link", "add", here, "type", "veth", "peer", "name", "eth0", "netns", name)
    _run("ip", "link", "set", here, "master", f"bai{token}", "up")
    for words in (
        "link set lo up",
        f"address add {prefix}.{10 + number}/24 dev eth0",
        "link set eth0 up",
        f"route add default via {prefix}.1",
    ):
        _run("ip", "-n", name, *words.split())
    host = f"unix://{folder}/docker.sock"
    script = _ENGINE.format(name=name, folder=folder, host=host)
    inside = ["nsenter", f"--net=/var/run/netns/{name}", "unshare", "--mount", "--uts"]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [*inside, "sh", "-c", script], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    stack.callback(_end, process, folder)
    wait_until(lambda: process.poll() is not None or answers(host), 60, "an engine of the Swarm")
    if process.poll() is not None:
        raise RuntimeError((folder / "log").read_text(errors="replace")[-2000:])
    engine = DockerEngine(host)
    stack.callback(engine.release)
    stack.callback(_empty, engine)
    return engine


def _empty(engine: DockerEngine) -> None:
    # An engine waits ten seconds for each container, and longer for the others of its Swarm.
    if found := engine.run("ps", "--all", "--quiet").split():
        engine.run("rm", "--force", "--volumes", *found)
    engine.run("swarm", "leave", "--force")


def _end(process: subprocess.Popen[bytes], folder: Path) -> None:
    # Nothing is left in it by now: it is not waited for long, and nor is what it has started.
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(30)
        with suppress(FileNotFoundError, ProcessLookupError, ValueError):
            os.kill(int((folder / "exec/containerd/containerd.pid").read_text()), signal.SIGKILL)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
