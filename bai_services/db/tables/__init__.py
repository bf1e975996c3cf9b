"""Every table of bai-hub; importing this package fills ``metadata``."""

from . import accounts, app_shares, callbacks, cluster, queue, sessions, ssh_keys, vfolders
from .base import metadata

__all__ = [
    "accounts",
    "app_shares",
    "callbacks",
    "cluster",
    "metadata",
    "queue",
    "sessions",
    "ssh_keys",
    "vfolders",
]
