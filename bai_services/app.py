"""Entry point of the manager, `bai-manager`: listen first, then import and serve.

The imports take more than a second. Clients that connect during the imports, mainly the Hub,
wait for the response; without a listener they would fail and retry seconds later.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from tornado.netutil import bind_sockets

from bai_services.system.imports import no_garbage_collections

DEFAULT_URL, DEFAULT_PORT = "http://127.0.0.1:8091", 8091
# If the Hub is killed, its manager uses the port until it detects that its parent process has
# ended.
BIND_TIMEOUT_SECONDS = 20.0
RETRY_SECONDS = 0.25

log = logging.getLogger("bai.manager")


class JsonFormatter(logging.Formatter):
    """Format each record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        content = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            content["exception"] = self.formatException(record.exc_info)
        return json.dumps(content, ensure_ascii=False)


def set_up_logging(environ: Mapping[str, str]) -> None:
    """Log to standard error; ``BAI_LOG_FORMAT`` (plain or json) and ``BAI_LOG_LEVEL`` apply."""
    handler = logging.StreamHandler()
    if environ.get("BAI_LOG_FORMAT") == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(
            logging.Formatter("[%(levelname).1s %(asctime)s manager %(name)s] %(message)s")
        )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(environ.get("BAI_LOG_LEVEL", "INFO").upper())
    # These libraries log every request or migration. httpx logs full URLs, which may contain
    # secrets.
    for noisy in ("httpx", "httpcore", "alembic", "tornado.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def listen(host: str, port: int) -> list[socket.socket]:
    """Listen on each address of the host, and return the listening sockets.

    Wait up to 20 s for a port that is in use.

    Raises
    ------
    SystemExit
        If the port stays in use, or the machine cannot listen on it, for example because the host
        is not an address of this machine.
    """
    deadline = time.monotonic() + BIND_TIMEOUT_SECONDS
    is_logged = False
    while True:
        try:
            return bind_sockets(port, host)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise SystemExit(f"cannot listen on {host}:{port}: {error.strerror}") from None
        if not is_logged:
            log.warning(
                "%s:%d is in use; waiting up to %d s until it is free",
                host,
                port,
                BIND_TIMEOUT_SECONDS,
            )
            is_logged = True
        time.sleep(RETRY_SECONDS)


def _import_server() -> Callable[[Mapping[str, str], list[socket.socket], int], None]:
    with no_garbage_collections():
        from bai_services.server import run
    return run


def main() -> None:
    # Read the parent's id first: if the parent ends while the manager starts, the id changes.
    parent = os.getppid()
    set_up_logging(os.environ)
    url = urlsplit(os.environ.get("JUPYTERHUB_SERVICE_URL") or DEFAULT_URL)
    sockets = listen(url.hostname or "127.0.0.1", url.port or DEFAULT_PORT)
    run = _import_server()
    try:
        run(os.environ, sockets, parent)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
