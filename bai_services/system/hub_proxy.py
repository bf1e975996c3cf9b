"""The command of configurable-http-proxy."""

from __future__ import annotations

from pathlib import Path

# Module that closes the client's connection when a server's response is incomplete.
_PRELOADED = Path(__file__).with_name("hub_proxy.cjs")


def proxy_command(node: Path, program: Path) -> list[str]:
    """Return the command without the options of the proxy."""
    return [str(node), "--require", str(_PRELOADED), str(program)]
