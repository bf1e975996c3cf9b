"""A Docker engine: one that answers already, or one of our own for as long as tests use it.

``python -m tests.testbed.docker_engine start|stop|status`` keeps one between runs.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tests.testbed import PartMissing, cache_dir
from tests.testbed.wait import wait_until

if TYPE_CHECKING:
    import docker

RUN_DIR = Path(os.environ.get("BAI_TESTBED_RUN", "/tmp/bai-testbed"))
OWN_HOST = f"unix://{RUN_DIR}/docker.sock"
DEFAULT_HOST = "unix:///var/run/docker.sock"


@dataclass
class DockerEngine:
    """An engine that answers at ``host``, held until `release`."""

    host: str
    held: IO[str] | None = None
    """The lock that keeps an engine of our own running; ``None`` for somebody else's."""

    @cached_property
    def client(self) -> docker.DockerClient:
        import docker

        return docker.DockerClient(base_url=self.host, timeout=60)

    def run(self, *arguments: str) -> str:
        """Run the ``docker`` command against this engine and return what it prints.

        Raises
        ------
        RuntimeError
            With what it wrote, if it fails.
        """
        environment = {**os.environ, "DOCKER_HOST": self.host}
        done = subprocess.run(
            ["docker", *arguments], capture_output=True, text=True, env=environment
        )
        if done.returncode:
            raise RuntimeError(f"docker {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def release(self) -> None:
        """Let go of the engine; the last one out stops an engine that tests have started."""
        if "client" in self.__dict__:
            self.client.close()
        if self.held is None:
            return
        with _locked("start", fcntl.LOCK_EX):
            self.held.close()
            with open(RUN_DIR / "users.lock", "w") as users:
                try:
                    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return
                if not (RUN_DIR / "keep").exists():
                    stop()


def answers(host: str) -> bool:
    """Say whether a Docker engine answers at ``host``."""
    # Not docker-py: a connection that it cannot make stays open.
    command = ["docker", "--host", host, "version", "--format", "{{.Server.Version}}"]
    try:
        return subprocess.run(command, capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def acquire() -> DockerEngine:
    """Return an engine: ``DOCKER_HOST``'s, the machine's, or our own, started if need be.

    Raises
    ------
    PartMissing
        If none answers and none can be started.
    """
    for host in (os.environ.get("DOCKER_HOST"), DEFAULT_HOST):
        if host and host != OWN_HOST and answers(host):
            return DockerEngine(host)
    try:
        RUN_DIR.mkdir(parents=True, exist_ok=True)
        with _locked("start", fcntl.LOCK_EX):
            if not answers(OWN_HOST):
                start()
            held = open(RUN_DIR / "users.lock", "w")  # noqa: SIM115  closed by `release`
            fcntl.flock(held, fcntl.LOCK_SH)
            return DockerEngine(OWN_HOST, held)
    except OSError as error:
        raise PartMissing(f"no place for an engine of our own: {error}") from error


@contextmanager
def _locked(name: str, how: int) -> Iterator[None]:
    with open(RUN_DIR / f"{name}.lock", "w") as file:
        fcntl.flock(file, how)
        yield


def start() -> None:
    """Start an engine with places of its own, beside any other; return when it answers.

    It outlives the process that starts it: other runs may be using it by then.

    Raises
    ------
    PartMissing
        If there is no engine to start, no right to start it, or it does not answer.
    """
    program = shutil.which("dockerd")
    if program is None:
        raise PartMissing(
            "no Docker engine answers and none is installed (scripts/testbed install)"
        )
    if os.geteuid() != 0:
        raise PartMissing("no Docker engine answers, and starting one needs root")
    RUN_DIR.mkdir(parents=True, exist_ok=True)
    # Kept between runs: images take minutes to build and nothing to find again.
    places = ["--data-root", str(cache_dir() / "docker"), "--exec-root", str(RUN_DIR / "exec")]
    log = RUN_DIR / "dockerd.log"
    with open(log, "wb") as output:
        subprocess.run(
            ["setsid", "--fork", program, *places, "-H", OWN_HOST, "-p", str(RUN_DIR / "pid")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=True,
        )
    try:
        wait_until(lambda: answers(OWN_HOST), 60, "dockerd to answer")
    except TimeoutError as error:
        tail = log.read_text(errors="replace")[-2000:]
        raise PartMissing(f"dockerd does not answer: {tail}") from error


def stop() -> None:
    """Stop our own engine and wait for its end; a second one started earlier would exit."""
    pid_file = RUN_DIR / "pid"
    with suppress(FileNotFoundError, ProcessLookupError, ValueError):
        os.kill(int(pid_file.read_text()), signal.SIGTERM)
        wait_until(lambda: not pid_file.exists(), 60, "dockerd to end")


def main(arguments: list[str]) -> int:
    verb = arguments[0] if len(arguments) == 1 else ""
    if verb == "start":
        if not answers(OWN_HOST):
            start()
        # Tells the last test run to leave it alone.
        (RUN_DIR / "keep").touch()
        print(OWN_HOST)
    elif verb == "stop":
        (RUN_DIR / "keep").unlink(missing_ok=True)
        stop()
    elif verb == "status":
        print(OWN_HOST if answers(OWN_HOST) else "not running")
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
