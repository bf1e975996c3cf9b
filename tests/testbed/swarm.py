"""A Docker Swarm on this machine: several engines, each in a separate network namespace."""

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

from tests.testbed import ComponentMissing
from tests.testbed.docker_engine import DockerEngine, responds
from tests.testbed.wait import wait_until

# Starts an engine, and starts it again when it is killed, as systemd does. A new sysfs shows the
# network devices of the engine's namespace; the cgroups of the machine are mounted in it. The
# engine's data is on a tmpfs: its thousands of files disappear with the mount namespace.
_ENGINE = """
set -e
hostname {name}
mkdir {folder}/cgroup {folder}/data
mount -t tmpfs tmpfs {folder}/data
mount --rbind /sys/fs/cgroup {folder}/cgroup
mount -t sysfs sysfs /sys
mount --rbind {folder}/cgroup /sys/fs/cgroup
code=137
while [ "$code" = 137 ]; do
    code=0
    rm -f {folder}/pid {folder}/exec/containerd/containerd.pid
    dockerd --data-root {folder}/data --exec-root {folder}/exec -H {host} -p {folder}/pid || code=$?
done
exit "$code"
"""


@contextmanager
def running(size: int) -> Iterator[list[DockerEngine]]:
    """Yield the engines of a Swarm, the only Swarm manager first; remove them at the end.

    Raises
    ------
    ComponentMissing
        If a program is not installed, this process is not root, or an engine does not start.
    """
    for program in ("dockerd", "ip", "iptables", "nsenter", "unshare"):
        if shutil.which(program) is None:
            raise ComponentMissing(f"a Swarm requires {program} (scripts/testbed install)")
    if os.geteuid() != 0:
        raise ComponentMissing("a Swarm on one machine requires root")
    token = secrets.token_hex(3)
    # Addresses reserved for benchmarks (RFC 2544), which real networks should not use.
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
            raise ComponentMissing(f"cannot create a Swarm: {error}") from error
        yield engines


def copy_image(name: str, source: DockerEngine, *targets: DockerEngine) -> None:
    """Copy an image from one engine to others.

    An engine writes the whole image to its disk before each export. Therefore, the image is
    exported only once, and all targets load this export at the same time.
    """
    save = subprocess.Popen(["docker", "-H", source.host, "save", name], stdout=subprocess.PIPE)
    loads = [
        subprocess.Popen(["docker", "-H", target.host, "load", "-q"], stdin=subprocess.PIPE)
        for target in targets
    ]
    try:
        assert save.stdout is not None
        while chunk := save.stdout.read(2**20):
            for load in loads:
                assert load.stdin is not None
                load.stdin.write(chunk)
        save.stdout.close()
        assert save.wait(60) == 0
        for load in loads:
            # If the image is not complete, `docker load` fails.
            load.communicate(timeout=120)
            assert load.returncode == 0
    finally:
        for process in (save, *loads):
            process.kill()
            process.wait()


def _make_bridge(stack: ExitStack, bridge: str, address: str) -> None:
    _run("ip", "link", "add", bridge, "type", "bridge")
    stack.callback(_run, "ip", "link", "delete", bridge)
    _run("ip", "address", "add", address, "dev", bridge)
    _run("ip", "link", "set", bridge, "up")
    # Docker sets the policy of the chain FORWARD to DROP, which would also drop bridged frames.
    rule = ["FORWARD", "-i", bridge, "-o", bridge, "-j", "ACCEPT"]
    _run("iptables", "-w", "-I", *rule)
    stack.callback(_run, "iptables", "-w", "-D", *rule)


def _node(stack: ExitStack, home: Path, token: str, prefix: str, number: int) -> DockerEngine:
    """Start an engine in a separate network namespace and return it when it responds."""
    name, folder = f"bai{token}-{number}", home / str(number)
    folder.mkdir()
    _run("ip", "netns", "add", name)
    stack.callback(_run, "ip", "netns", "delete", name)
    # The kernel deletes this interface when it deletes the namespace with its peer, eth0.
    bridge_port = f"v{token}-{number}"
    _run("ip", "link", "add", bridge_port, "type", "veth", "peer", "name", "eth0", "netns", name)
    _run("ip", "link", "set", bridge_port, "master", f"bai{token}", "up")
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
    stack.callback(_stop, process, folder)
    wait_until(lambda: process.poll() is not None or responds(host), 60, "an engine of the Swarm")
    if process.poll() is not None:
        raise RuntimeError((folder / "log").read_text(errors="replace")[-2000:])
    engine = DockerEngine(host)
    stack.callback(engine.release)
    stack.callback(_remove_containers, engine)
    return engine


def _remove_containers(engine: DockerEngine) -> None:
    if not responds(engine.host):
        return  # a test has killed the machine
    # Otherwise, stopping the engine would take 10 s for each container.
    if containers := engine.run("ps", "--all", "--quiet").split():
        engine.run("rm", "--force", "--volumes", *containers)
    if engine.run("info", "--format", "{{.Swarm.LocalNodeState}}") != "inactive":
        engine.run("swarm", "leave", "--force")


def _stop(process: subprocess.Popen[bytes], folder: Path) -> None:
    # The engine has no containers, so a short timeout is enough before dockerd and containerd
    # are killed.
    _kill(folder / "pid", signal.SIGTERM)
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(30)
        _kill(folder / "pid", signal.SIGKILL)
        _kill(folder / "exec/containerd/containerd.pid", signal.SIGKILL)


def _kill(pid_file: Path, number: signal.Signals) -> None:
    with suppress(FileNotFoundError, ProcessLookupError, ValueError):
        os.kill(int(pid_file.read_text()), number)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
