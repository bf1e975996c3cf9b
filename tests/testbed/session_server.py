"""A session's Jupyter server with our extension, and with a token instead of a Hub."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bai_labext import config_path

from .jupyter import JupyterServer
from .ports import free_port
from .wait import wait_until

# Program that starts JupyterLab with the faster import of sessions. The normal import takes twice
# the CPU time.
JUPYTERLAB = """
from bai_labext.__main__ import import_jupyterlab
import_jupyterlab()
from jupyterlab.labapp import main
main()
"""


@contextmanager
def session_server(home: Path, environ: Mapping[str, str] | None = None) -> Iterator[JupyterServer]:
    """Run a session's server in ``home`` during the block.

    Its manager cannot be reached, unless ``environ`` contains another ``BAI_MANAGER_URL``.
    """
    port = free_port()
    own = {
        "HOME": str(home),
        "PATH": "/usr/sbin:/usr/bin:/bin",
        "JUPYTER_CONFIG_PATH": config_path(),
        "JUPYTER_TOKEN": "secret",
        "BAI_SESSION_ENGINE": "process",
        "BAI_SESSION_ID": "some",
        "BAI_MANAGER_URL": f"http://127.0.0.1:{free_port()}/services/bai",
        "JUPYTERHUB_API_TOKEN": "secret-of-the-session",
        **(environ or {}),
    }
    log = home / "server.log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", JUPYTERLAB, f"--port={port}", "--port-retries=0"],
            env=own,
            cwd=home,
            stdout=output,
            stderr=output,
        )
    server = JupyterServer(f"http://127.0.0.1:{port}/", "secret")
    try:
        wait_until(lambda: process.poll() is not None or server.is_ready(), 60, "Jupyter")
        assert process.poll() is None, log.read_text()
        yield server
    finally:
        process.terminate()
        process.wait(30)
