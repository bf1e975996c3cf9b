"""Streamlit on a unix socket: ``python -m bai_labext.streamlit_server SCRIPT SOCKET``.

Its own server listens on TCP only, where other users of the machine could reach it; older versions
accept a unix socket.
"""

from __future__ import annotations

import sys
from pathlib import Path

import streamlit


def main(script: str, unix_socket: str) -> None:
    # As in `streamlit run`: a script can import modules beside it.
    sys.path.insert(0, str(Path(script).parent))
    if not hasattr(streamlit, "App"):
        from streamlit.web import cli

        cli.main(["run", script, "--server.address", f"unix://{unix_socket}"])
        return
    import uvicorn

    sys.argv = [script]
    most_bytes = streamlit.get_option("server.maxMessageSize") * 2**20
    uvicorn.run(streamlit.App(script), uds=unix_socket, access_log=False, ws_max_size=most_bytes)


if __name__ == "__main__":
    main(*sys.argv[1:])
