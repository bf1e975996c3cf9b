"""Provisioning command of the test. A provisioned machine is a real agent on this machine.

The test writes it as a script with the line ``#!PYTHON`` and the folder of the test in ``FOLDER``.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


def main() -> None:
    """Start or stop an agent according to the request on standard input."""
    folder = Path(os.environ["FOLDER"])
    request = json.load(sys.stdin)
    with open(folder / "calls", "a") as calls:
        print(json.dumps(request["action"]), file=calls)
    state = folder / request["machine"]["id"]
    if request["action"] == "start":
        _start(request, folder, state)
    else:
        _stop(state)


def _start(request: dict[str, dict[str, str]], folder: Path, state: Path) -> None:
    if request["machine"]["engine"] == "docker":
        _start_with_docker(request, folder, state)
        return
    agent = [sys.executable, "-m", "bai_services.agent"]
    url = (folder / "hub-url").read_text()
    units, name = str(state / "units"), request["machine"]["agent_id"]
    (state / "units").mkdir(parents=True)
    environment = {
        **os.environ,
        "BAI_HOME": str(state / "home"),
        "BAI_AGENT_SIMULATED_GPUS": "0",
        # The Hub can start processes only in its own home, so the agent starts the session.
        "BAI_AGENT_RUNS_BATCH": "1",
    }
    # The manager reports the last line of standard error as the error.
    joined = subprocess.run(
        [
            *(*agent, "join", url, "--token", request["join"]["token"], "--id", name),
            *("--engine", "process", "--state", str(state), "--units", units),
        ],
        check=False,
        stdout=sys.stderr,
        env=environment,
    )
    if joined.returncode:
        sys.exit(joined.returncode)
    _run_machine([*agent, "run", "--state", str(state)], state, environment)


def _start_with_docker(request: dict[str, dict[str, str]], folder: Path, state: Path) -> None:
    """Start a machine with a Docker engine. The machine joins after this command has ended."""
    state.mkdir()
    words = [(folder / "hub-url").read_text(), request["join"]["token"]]
    words += [request["machine"]["agent_id"], os.environ["IMAGE"], os.environ["SOURCE"], str(state)]
    _run_machine([sys.executable, "-m", "tests.e2e.docker_machine", *words], state, os.environ)


def _run_machine(command: list[str], state: Path, environment: Mapping[str, str]) -> None:
    # The manager kills the command's process group at its end, so the machine needs another group.
    with open(state / "agent.log", "ab") as log:
        started = subprocess.Popen(
            command,
            cwd=os.environ.get("ROOT"),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    (state / "pid").write_text(str(started.pid))
    print(json.dumps({"reference": f"agent-{started.pid}"}))


def _stop(state: Path) -> None:
    try:
        os.kill(int((state / "pid").read_text()), signal.SIGTERM)
    except (FileNotFoundError, ProcessLookupError):
        print("the machine is already gone", file=sys.stderr)
    else:
        shutil.move(state / "pid", state / "stopped")
    print("{}")


if __name__ == "__main__":
    main()
