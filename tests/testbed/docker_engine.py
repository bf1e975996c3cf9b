"""A Docker engine for tests: one that already runs, or one that the tests start and stop.

``python -m tests.testbed.docker_engine start|stop|status`` manages an engine that keeps running
between test runs.
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

from tests.testbed import ComponentMissing, cache_dir
from tests.testbed.wait import wait_until

if TYPE_CHECKING:
    import docker

RUN_DIR = Path(os.environ.get("BAI_TESTBED_RUN", "/tmp/bai-testbed"))
OWN_HOST = f"unix://{RUN_DIR}/docker.sock"
DEFAULT_HOST = "unix:///var/run/docker.sock"
# A whole run of the tests writes about 15 GiB, most of it images.
FREE_BYTES = 30 << 30


@dataclass
class DockerEngine:
    """A Docker engine that responds at ``host``; call `release` when it is no longer needed."""

    host: str
    lock: IO[str] | None = None
    """The lock that keeps the testbed's engine running; ``None`` for any other engine."""

    @cached_property
    def client(self) -> docker.DockerClient:
        import docker

        return docker.DockerClient(base_url=self.host, timeout=60)

    def run(self, *arguments: str) -> str:
        """Run the ``docker`` command against this engine and return its standard output.

        Raises
        ------
        RuntimeError
            If the command fails; the message contains its standard error.
        """
        environment = {**os.environ, "DOCKER_HOST": self.host}
        done = subprocess.run(
            ["docker", *arguments], capture_output=True, text=True, env=environment
        )
        if done.returncode:
            raise RuntimeError(f"docker {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def release(self) -> None:
        """Release the engine.

        Stop the testbed's engine, unless a test run still uses it or ``start`` keeps it.
        """
        if "client" in self.__dict__:
            self.client.close()
        if self.lock is None:
            return
        with _locked("start", fcntl.LOCK_EX):
            self.lock.close()
            with open(RUN_DIR / "users.lock", "w") as users:
                try:
                    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return
                if not (RUN_DIR / "keep").exists():
                    stop()


def responds(host: str) -> bool:
    """Return whether a Docker engine responds at ``host``."""
    # Use the command: docker-py leaks the socket of a failed connection.
    command = ["docker", "--host", host, "version", "--format", "{{.Server.Version}}"]
    try:
        return subprocess.run(command, capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def acquire() -> DockerEngine:
    """Return the first engine that responds; if none responds, start the testbed's engine.

    The order is: the engine at ``DOCKER_HOST``, the machine's, the testbed's.

    Raises
    ------
    ComponentMissing
        If no engine responds and none can be started.
    """
    for host in (os.environ.get("DOCKER_HOST"), DEFAULT_HOST):
        if host and host != OWN_HOST and responds(host):
            return DockerEngine(host)
    try:
        RUN_DIR.mkdir(parents=True, exist_ok=True)
        with _locked("start", fcntl.LOCK_EX):
            if not responds(OWN_HOST):
                start()
            lock = open(RUN_DIR / "users.lock", "w")  # noqa: SIM115  closed by `release`
            fcntl.flock(lock, fcntl.LOCK_SH)
            return DockerEngine(OWN_HOST, lock)
    except OSError as error:
        raise ComponentMissing(f"cannot create the lock files in {RUN_DIR}: {error}") from error


@contextmanager
def _locked(name: str, how: int) -> Iterator[None]:
    with open(RUN_DIR / f"{name}.lock", "w") as file:
        fcntl.flock(file, how)
        yield


def start() -> None:
    """Start the testbed's engine, with its own folders, and return when it responds.

    The engine outlives this process, because other test runs may use it by then.

    Raises
    ------
    ComponentMissing
        If dockerd is not installed, this process is not root, or dockerd does not respond.
    """
    program = shutil.which("dockerd")
    if program is None:
        raise ComponentMissing(
            "no Docker engine responds and none is installed (scripts/testbed install)"
        )
    if os.geteuid() != 0:
        raise ComponentMissing("no Docker engine responds, and starting one requires root")
    RUN_DIR.mkdir(parents=True, exist_ok=True)
    # The data folder is kept between runs, because images take minutes to build.
    folders = ["--data-root", str(cache_dir() / "docker"), "--exec-root", str(RUN_DIR / "exec")]
    log = RUN_DIR / "dockerd.log"
    with open(log, "wb") as output:
        subprocess.run(
            ["setsid", "--fork", program, *folders, "-H", OWN_HOST, "-p", str(RUN_DIR / "pid")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=True,
        )
    try:
        wait_until(lambda: responds(OWN_HOST), 60, "dockerd to respond")
    except TimeoutError as error:
        tail = log.read_text(errors="replace")[-2000:]
        raise ComponentMissing(f"dockerd does not respond: {tail}") from error
    if shutil.disk_usage(cache_dir()).free < FREE_BYTES:
        remove_old_images(DockerEngine(OWN_HOST))


def remove_old_images(engine: DockerEngine) -> None:
    """Remove stopped containers and all images except the newest one of each name.

    Each state of the working tree has its own images, so they would fill the disk in time.
    """
    engine.run("container", "prune", "--force")
    newest: set[str] = set()
    # Docker lists the newest image first.
    for name in engine.run("image", "ls", "--format", "{{.Repository}}:{{.Tag}}").splitlines():
        repository, _, tag = name.rpartition(":")
        if "<none>" in name or tag == "latest":
            continue
        if repository not in newest:
            newest.add(repository)
            continue
        # An image that another image is made from cannot be removed.
        with suppress(RuntimeError):
            engine.run("image", "rm", name)
    engine.run("image", "prune", "--force")


def stop() -> None:
    """Stop the testbed's engine and wait until it has exited, so that it can be started again."""
    pid_file = RUN_DIR / "pid"
    with suppress(FileNotFoundError, ProcessLookupError, ValueError):
        os.kill(int(pid_file.read_text()), signal.SIGTERM)
        wait_until(lambda: not pid_file.exists(), 60, "dockerd to exit")


def main(arguments: list[str]) -> int:
    verb = arguments[0] if len(arguments) == 1 else ""
    if verb == "start":
        if not responds(OWN_HOST):
            start()
        # While this file exists, no test run stops the engine.
        (RUN_DIR / "keep").touch()
        print(OWN_HOST)
    elif verb == "stop":
        (RUN_DIR / "keep").unlink(missing_ok=True)
        stop()
    elif verb == "status":
        print(OWN_HOST if responds(OWN_HOST) else "not running")
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
