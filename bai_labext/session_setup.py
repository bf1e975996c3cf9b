"""Apply the setup file that the agent has written: variables and bootstrap scripts.

The server of a session applies it once, before it responds to the Hub: the session becomes RUNNING
only after the scripts have ended. The module imports only the standard library and one small
module, because its import time delays every batch session.

``python -m bai_labext.session_setup FILE`` applies it in a sub kernel of a cluster session, and
adds the variables to the configuration of its SSH server.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from bai_labext import attached
from bai_services.core.sessions.end_reason import BOOTSTRAP_FAILED_EXIT_CODE

FILE_VARIABLE = "BAI_SETUP_FILE"
# The last shell is in the parts of the platform, which are mounted in images without a shell.
SHELLS = ("/bin/bash", "/bin/sh", "/opt/bai/rt/busybox/sh")


def apply(environ: MutableMapping[str, str]) -> Mapping[str, str]:
    """Add the variables of the setup file to ``environ``, then run the scripts.

    In a server that is attached to a batch session, the scripts have run already, in the batch
    runner.

    Return the variables. Without a setup file, return an empty mapping. The variable with the path
    of the file is removed, so that the scripts run only once.

    Raises
    ------
    SystemExit
        With ``BOOTSTRAP_FAILED_EXIT_CODE``, if a script fails or exceeds its time limit.
    """
    path = environ.pop(FILE_VARIABLE, "")
    if not path:
        return {}
    setup = json.loads(Path(path).read_text())
    variables: dict[str, str] = setup["variables"]
    environ.update(variables)
    if attached.VARIABLE not in environ:
        for script in setup["scripts"]:
            _run(script, environ)
    return variables


def _run(script: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Run one script with its output in the log of the session; exit if it fails."""
    label = f"the bootstrap script of {script['origin']}"
    with tempfile.TemporaryDirectory(prefix="bai-") as folder:
        file = Path(folder) / "bootstrap"
        file.write_text(script["script"])
        file.chmod(0o700)
        command = [str(file)] if script["script"].startswith("#!") else [shell(), str(file)]
        try:
            process = subprocess.Popen(
                command, env=dict(environ), stdin=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            _fail(f"{label} cannot be started: {error.strerror}")
        try:
            code = process.wait(script["timeout_seconds"])
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            _fail(f"{label} exceeded its time limit of {script['timeout_seconds']} s")
    if code:
        how = f"exit code {code}" if code > 0 else f"signal {-code}"
        _fail(f"{label} failed with {how}")


def shell() -> str:
    """Return the shell that runs scripts and commands; the image may have none."""
    return next((path for path in SHELLS if os.access(path, os.X_OK)), "/bin/sh")


def _fail(text: str) -> NoReturn:
    print(text, file=sys.stderr, flush=True)
    raise SystemExit(BOOTSTRAP_FAILED_EXIT_CODE)


def add_to_sshd(config: Path, variables: Mapping[str, str]) -> None:
    """Add variables to the first ``SetEnv`` line of an SSH server; sshd ignores further ones.

    Values with quotation marks, backslashes or line breaks are left out: sshd cannot represent
    them.
    """
    settings = [f'{k}="{v}"' for k, v in sorted(variables.items()) if not set(v) & set('"\\\n\r')]
    added = " ".join(["SetEnv", *settings])
    text = config.read_text()
    config.write_text(re.sub(r"(?m)^SetEnv\b", lambda _: added, text, count=1))


if __name__ == "__main__":
    added = apply(os.environ)
    if added and os.access(sys.argv[1], os.W_OK):
        add_to_sshd(Path(sys.argv[1]), added)
