"""All tables of bai-hub; importing this package registers them in ``metadata``."""

from . import (
    accounts,
    apps,
    callbacks,
    cluster,
    external_identities,
    folders,
    one_time_codes,
    scheduling,
    sessions,
    ssh_keys,
)
from .base import metadata

__all__ = [
    "accounts",
    "apps",
    "callbacks",
    "cluster",
    "external_identities",
    "folders",
    "metadata",
    "one_time_codes",
    "scheduling",
    "sessions",
    "ssh_keys",
]
