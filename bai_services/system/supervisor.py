"""Supervise a module: restart it immediately when it ends, unless it fails to start.

    python -m bai_services.system.supervisor PACKAGE:MODULE [ARGUMENT …]

The Hub checks its services only every 30 seconds. If the module fails to start, the supervisor
exits with the module's exit code; the Hub reports the failure and tries again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

CHECK_SECONDS = 0.25
# The supervisor gives up if the module exits within QUICK_SECONDS of its start, or if it is killed
# within that time MAX_QUICK_EXITS consecutive times.
QUICK_SECONDS = 5.0
MAX_QUICK_EXITS = 3
STOP_SECONDS = 20.0

_STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}
# These signals are blocked and received by sigtimedwait, so that none arrives between the start of
# a process and the assignment of its handle.
_WATCHED = {*_STOP_SIGNALS, signal.SIGCHLD}


def supervise(command: list[str]) -> int:
    """Run a command and restart it when it ends.

    Return 0 after SIGTERM, SIGINT or the end of the parent process. Return the exit code of
    the command if it fails to start: it exits within 5 s, or it is killed within 5 s three
    times in a row. The exit code of a killed command is 128 plus the number of the signal.
    """
    parent = os.getppid()
    quick_exits = 0
    while True:
        started_at = time.monotonic()
        child = _start(command)
        while child.poll() is None:
            received = signal.sigtimedwait(_WATCHED, CHECK_SECONDS)
            if (
                received is not None and received.si_signo in _STOP_SIGNALS
            ) or os.getppid() != parent:
                return _stop(child)
        code = child.returncode
        is_quick = time.monotonic() - started_at < QUICK_SECONDS
        quick_exits = quick_exits + 1 if is_quick else 0
        if quick_exits and (code >= 0 or quick_exits == MAX_QUICK_EXITS):
            return code if code >= 0 else 128 - code
        how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        print(f"{command[-1]} {how}; restarting it", file=sys.stderr, flush=True)


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    # A child inherits blocked signals: unblock them.
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
        sys.exit("usage: python -m bai_services.system.supervisor PACKAGE:MODULE [ARGUMENT …]")
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    module = sys.argv[1].replace(":", ".")
    # exit_with_parent: the module must also end if this process is killed.
    launcher = [sys.executable, "-m", "bai_services.system.exit_with_parent"]
    sys.exit(supervise([*launcher, module, *sys.argv[2:]]))


if __name__ == "__main__":
    main()
