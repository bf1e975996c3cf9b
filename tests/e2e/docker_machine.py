"""A machine of a provider: a Docker engine in a network namespace, with an agent that joins a hub.

It runs until SIGTERM. Arguments: URL of the hub, token of the invitation, id of the agent, image,
engine that has the image, folder for the state.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

from tests.testbed import nodes, swarm
from tests.testbed.docker_engine import DockerEngine


def main(url: str, token: str, agent_id: str, image: str, source: str, folder: str) -> None:
    is_stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_stopped.set())
    with swarm.running(1) as (engine,):
        swarm.copy_image(image, DockerEngine(source), engine)
        # Let the agent accept clients from the gateway of the node's network: with this address,
        # the Hub's machine connects.
        settings = f"BAI_AGENT_CLIENTS={nodes.gateway(engine)}\n"
        machine = nodes.joined(
            url, [token], [engine], Path(folder), agent_id=agent_id, settings=settings
        )
        with machine:
            is_stopped.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
