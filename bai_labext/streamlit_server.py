"""Streamlit on a Unix socket: ``python -m bai_labext.streamlit_server SCRIPT SOCKET``.

The server of newer Streamlit versions listens on TCP only, where other users of the host could
reach it, so the app runs in uvicorn. The server of older versions can listen on a Unix socket.
"""

from __future__ import annotations

import sys
from pathlib import Path

import streamlit


def main(script: str, unix_socket: str) -> None:
    # Like `streamlit run`, let the script import modules in its folder.
    sys.path.insert(0, str(Path(script).parent))
    if not hasattr(streamlit, "App"):
        from streamlit.web import cli

        cli.main(["run", script, "--server.address", f"unix://{unix_socket}"])
        return
    import uvicorn

    sys.argv = [script]
    max_bytes = streamlit.get_option("server.maxMessageSize") * 2**20
    uvicorn.run(streamlit.App(script), uds=unix_socket, access_log=False, ws_max_size=max_bytes)


if __name__ == "__main__":
    main(*sys.argv[1:])
