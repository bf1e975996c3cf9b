"""A second machine, simulated by a network namespace behind a veth pair."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.testbed import ComponentMissing


@dataclass(frozen=True)
class SecondMachine:
    """A second machine at ``address``, which reaches this machine at ``peer_address``."""

    namespace: str
    address: str
    peer_address: str

    def python(self, program: str, *arguments: str) -> str:
        """Run a Python program on the second machine and return its standard output."""
        done = subprocess.run(
            [*self.command(), sys.executable, "-c", program, *arguments],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def command(self) -> list[str]:
        return ["nsenter", f"--net=/var/run/netns/{self.namespace}"]


@contextmanager
def running(network: str = "198.18") -> Iterator[SecondMachine]:
    """Yield a second machine with an address in ``network``; remove it at the end.

    ``network`` is the first two octets of an IPv4 address.

    Raises
    ------
    ComponentMissing
        If no network namespace can be created.
    """
    for program in ("ip", "nsenter"):
        if shutil.which(program) is None:
            raise ComponentMissing(f"a second machine requires {program} (scripts/testbed install)")
    if os.geteuid() != 0:
        raise ComponentMissing("a network namespace requires root")
    token = secrets.token_hex(3)
    prefix = f"{network}.{int(token[:2], 16)}"
    name = here = f"bai-m{token}"  # of the namespace, and of this end of the veth pair
    with ExitStack() as stack:
        try:
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "delete", name)
            _ip("link", "add", here, "type", "veth", "peer", "name", "eth0", "netns", name)
            stack.callback(_remove_link, here)
            _ip("address", "add", f"{prefix}.1/24", "dev", here)
            _ip("link", "set", here, "up")
            for words in (
                "link set lo up",
                f"address add {prefix}.2/24 dev eth0",
                "link set eth0 up",
                f"route add default via {prefix}.1",
            ):
                _ip("-n", name, *words.split())
        except subprocess.CalledProcessError as error:
            raise ComponentMissing(f"cannot create a network namespace: {error.stderr}") from error
        yield SecondMachine(name, f"{prefix}.2", f"{prefix}.1")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def _remove_link(name: str) -> None:
    subprocess.run(["ip", "link", "delete", name], capture_output=True)
