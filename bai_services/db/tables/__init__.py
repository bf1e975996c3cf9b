"""All tables of bai-hub; importing this package registers them in ``metadata``."""

from . import (
    accounts,
    apps,
    callbacks,
    cluster,
    folders,
    mails,
    scheduling,
    self_service,
    sessions,
    ssh_keys,
)
from .base import metadata

__all__ = [
    "accounts",
    "apps",
    "callbacks",
    "cluster",
    "folders",
    "mails",
    "metadata",
    "scheduling",
    "self_service",
    "sessions",
    "ssh_keys",
]
