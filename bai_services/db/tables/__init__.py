"""All tables of bai-hub; importing this package registers them in ``metadata``."""

from . import accounts, apps, callbacks, cluster, folders, scheduling, sessions, ssh_keys, usage
from .base import metadata

__all__ = [
    "accounts",
    "apps",
    "callbacks",
    "cluster",
    "folders",
    "metadata",
    "scheduling",
    "sessions",
    "ssh_keys",
    "usage",
]
