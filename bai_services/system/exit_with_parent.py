"""Run a module that must end together with its parent process.

    python -m bai_services.system.exit_with_parent MODULE [ARGUMENT …]

When the parent ends, even by kill -9, this process sends itself SIGTERM. This frees its ports for a
successor.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time

CHECK_SECONDS = 0.25
GRACE_SECONDS = 10


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(CHECK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    # The module did not end after SIGTERM. SIGKILL is safe, because the module's files survive a
    # crash.
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("usage: python -m bai_services.system.exit_with_parent MODULE [ARGUMENT …]")
    watch = threading.Thread(target=_watch_parent, args=(os.getppid(),), daemon=True)
    watch.start()
    module = sys.argv[1]
    sys.argv = sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
