"""Machines of a cluster: engines of a Swarm on this machine, each with an agent that has joined a
hub.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.testbed.docker_engine import DockerEngine, responds
from tests.testbed.wait import wait_until

_AGENT = [sys.executable, "-m", "bai_services.agent"]
# Runs a program in the network namespace of a node. The mounted sysfs shows its interfaces.
_INSIDE = """
set -e
mount -t sysfs sysfs /sys
exec "$@"
"""


@dataclass
class Node:
    """A machine of the cluster: its agent, its engine, and its address in the network."""

    agent_id: str
    engine: DockerEngine
    address: str
    state: Path
    log: Path
    join_seconds: float
    """Duration of `bai-agent join`."""
    agent: subprocess.Popen[bytes] = field(init=False)

    def start_agent(self, **environment: str) -> None:
        command = [*_AGENT, "run", "--state", str(self.state)]
        with open(self.log, "ab") as log:
            self.agent = subprocess.Popen(
                self.command(*command),
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def stop_agent(self) -> None:
        self.agent.terminate()
        try:
            self.agent.wait(20)
        except subprocess.TimeoutExpired:
            self.agent.kill()
            self.agent.wait(20)

    def engine_pid(self) -> int:
        return int(Path(self.engine.host.removeprefix("unix://")).with_name("pid").read_text())

    @contextmanager
    def suspended_engine(self) -> Iterator[None]:
        """Suspend the engine during the block; its containers continue."""
        pid = self.engine_pid()
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def crash_engine(self) -> None:
        """Kill the engine, and wait until it has been started again."""
        pid = self.engine_pid()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not _exists(pid), 20, "the end of the engine")
        wait_until(lambda: responds(self.engine.host), 60, "the restarted engine")

    def command(self, *words: str) -> list[str]:
        """Return a command that runs in the network of this machine."""
        return _inside(self.agent_id, words)

    def cut(self) -> None:
        """Cut this machine off from the network."""
        self._set_link("down")

    def reconnect(self) -> None:
        self._set_link("up")

    def kill(self) -> None:
        """Kill all processes of this machine at once, like a power failure."""
        containers = self.engine.run("ps", "--quiet").split()
        inspect = ["inspect", "--format", "{{.State.Pid}}", *containers]
        pids = self.engine.run(*inspect).split() if containers else []
        done = subprocess.run(
            ["ip", "netns", "pids", self.agent_id], capture_output=True, text=True, check=True
        )
        for pid in [*done.stdout.split(), *pids]:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def _set_link(self, state: str) -> None:
        # The machine has one link. Its other end is in this network namespace (see ``swarm.py``).
        port = f"v{self.agent_id.removeprefix('bai')}"
        subprocess.run(["ip", "link", "set", port, state], check=True)


def gateway(engine: DockerEngine) -> str:
    """Return the address of this machine in the network of the nodes."""
    return f"{_address(engine).rpartition('.')[0]}.1"


@contextmanager
def joined(
    url: str,
    tokens: Sequence[str],
    engines: Sequence[DockerEngine],
    folder: Path,
    *,
    agent_id: str = "",
    settings: str = "",
) -> Iterator[list[Node]]:
    """Yield a node for each engine, whose agent has joined the hub at ``url``.

    ``tokens`` are the tokens of invitations, one for each engine. ``agent_id``: default: the name
    of the node. ``settings``: further lines of ``agent.env``.
    """
    with ExitStack() as stack:
        yield [
            stack.enter_context(_running_agent(url, token, engine, folder, agent_id, settings))
            for token, engine in zip(tokens, engines, strict=True)
        ]


@contextmanager
def _running_agent(
    url: str, token: str, engine: DockerEngine, folder: Path, agent_id: str, settings: str
) -> Iterator[Node]:
    name, address = str(engine.client.info()["Name"]), _address(engine)
    state, units = folder / name, folder / f"{name}-units"
    units.mkdir()
    places = ["--state", str(state), "--units", str(units)]
    options = ["--id", agent_id or name, "--token", token, "--docker-host", engine.host]
    join = [*_AGENT, "join", url, *options, *places]
    begun = time.monotonic()
    done = subprocess.run(_inside(name, join), capture_output=True, text=True, timeout=120)
    join_seconds = time.monotonic() - begun
    assert done.returncode == 0, done.stdout + done.stderr
    with open(state / "agent.env", "a") as file:
        file.write(f"BAI_AGENT_CPU=8\nBAI_AGENT_MEM=8g\n{settings}")
    node = Node(name, engine, address, state, folder / f"{name}.log", join_seconds)
    node.start_agent()
    try:
        yield node
    finally:
        node.stop_agent()


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _address(engine: DockerEngine) -> str:
    return str(engine.client.info()["Swarm"]["NodeAddr"])


def _inside(name: str, words: Sequence[str]) -> list[str]:
    enter = ["nsenter", f"--net=/var/run/netns/{name}", "unshare", "--mount"]
    return [*enter, "sh", "-c", _INSIDE, "sh", *words]
