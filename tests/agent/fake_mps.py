#!/usr/bin/env python3
"""A fake nvidia-cuda-mps-control that records its commands.

Its files are in the folder ``$FAKE_MPS``. It appends each command to the file ``commands``. It
reads its servers and their clients from the file ``servers``, for instance
``{"101": {"status": "ACTIVE", "clients": [7]}}``. While a file ``no-start``, ``hang`` or ``refuse``
exists, the fake has the fault of that name.
"""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

PIPE = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
FOLDER = Path(os.environ.get("FAKE_MPS") or Path(__file__).parent)
SOCKET = PIPE / "control"


def record(line):
    with open(FOLDER / "commands", "a") as file:
        file.write(f"{PIPE.parent.name} {line}\n")


def servers():
    try:
        return json.loads((FOLDER / "servers").read_text())
    except FileNotFoundError:
        return {}


def respond(words, state):
    found = servers()
    match words:
        case ["set_default_active_thread_percentage", value]:
            state["percent"] = float(value)
            (PIPE.parent / "percent").write_text(value)
        case ["set_default_device_pinned_mem_limit", _, value]:
            (PIPE.parent / "memory").write_text(value.rstrip("M"))
        case ["get_default_active_thread_percentage"]:
            return f"{state['percent']:.1f}"
        case ["get_server_list"]:
            return "\n".join(found)
        case ["get_server_status", server]:
            return found[server]["status"]
        case ["get_client_list", server]:
            return "\n".join(map(str, found[server]["clients"]))
        case ["terminate_client", server, client]:
            found[server]["clients"].remove(int(client))
            if not found[server]["clients"]:
                found[server]["status"] = "ACTIVE"
            written = FOLDER / ".servers"
            written.write_text(json.dumps(found))
            written.replace(FOLDER / "servers")
    return ""


def serve():
    if (FOLDER / "no-start").exists():
        print("MPS cannot be used on this device", file=sys.stderr)
        sys.exit(1)
    record(f"start {os.environ['CUDA_VISIBLE_DEVICES']} {' '.join(sys.argv[1:])}")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(SOCKET))
    listener.listen()
    if os.fork():
        os._exit(0)
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    state = {"percent": 100.0}
    while True:
        connection, _ = listener.accept()
        with connection:
            line = connection.recv(4096).decode()
            while (FOLDER / "hang").exists():
                time.sleep(0.01)
            if not line:
                continue
            record(line)
            connection.sendall((respond(line.split(), state) + "\n").encode())
            if line == "quit":
                SOCKET.unlink()
                sys.exit(0)


def send_commands():
    if (FOLDER / "refuse").exists():
        print("Invalid command", file=sys.stderr)
        sys.exit(1)
    for line in sys.stdin.read().splitlines():
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(SOCKET))
            except OSError:
                print("Cannot find MPS control daemon process", file=sys.stderr)
                sys.exit(1)
            connection.sendall(line.encode())
            print(connection.recv(65536).decode(), end="")


serve() if "-d" in sys.argv else send_commands()
