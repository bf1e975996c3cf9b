"""Jupyter server extension of a session: its apps, the API of the session panel, and settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def config_path() -> str:
    """Return the folder with a session's Jupyter configuration, for ``JUPYTER_CONFIG_PATH``."""
    return str(Path(__file__).parent / "config")


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "bai_labext"}]


def _load_jupyter_server_extension(server_app: Any) -> None:
    from bai_labext import extension

    extension.load(server_app)
