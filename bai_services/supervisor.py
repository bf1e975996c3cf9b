"""Supervise a module: restart it as soon as it ends.

    python -m bai_services.supervisor PACKAGE:MODULE [ARGUMENT …]

The Hub itself checks its services every 30 seconds only. A module that ends repeatedly just after
its start cannot start: its exit code is passed to the Hub, which reports it and tries again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

CHECK_SECONDS = 0.25
# An exit within this time counts as a failed start; give up after this many in a row.
QUICK_SECONDS = 5.0
MAX_QUICK_EXITS = 3
STOP_SECONDS = 20.0

_STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}
# Blocked signals, fetched by sigwait: none can arrive between starting a process and recording it.
_WATCHED = {*_STOP_SIGNALS, signal.SIGCHLD}


def supervise(command: list[str]) -> int:
    """Run a command again and again until a signal arrives or our parent ends; return its code."""
    parent = os.getppid()
    quick = 0
    while True:
        began = time.monotonic()
        child = _start(command)
        while child.poll() is None:
            received = signal.sigtimedwait(_WATCHED, CHECK_SECONDS)
            if (
                received is not None and received.si_signo in _STOP_SIGNALS
            ) or os.getppid() != parent:
                return _stop(child)
        code = child.returncode
        quick = quick + 1 if time.monotonic() - began < QUICK_SECONDS else 0
        if quick and (code >= 0 or quick == MAX_QUICK_EXITS):
            return code if code >= 0 else 128 - code
        how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
        print(f"{command[-1]} {how}; it is started again", file=sys.stderr, flush=True)


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    # A blocked signal would stay blocked in the child, too.
    return subprocess.Popen(
        command, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
    )


def _stop(child: subprocess.Popen[bytes]) -> int:
    child.terminate()
    try:
        child.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    return 0


def main() -> None:
    if len(sys.argv) < 2 or ":" not in sys.argv[1]:
        sys.exit("usage: python -m bai_services.supervisor PACKAGE:MODULE [ARGUMENT …]")
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    module = sys.argv[1].replace(":", ".")
    # With exit_with_parent, so that it also ends if this process is killed.
    attached = [sys.executable, "-m", "bai_services.exit_with_parent"]
    sys.exit(supervise([*attached, module, *sys.argv[2:]]))


if __name__ == "__main__":
    main()
