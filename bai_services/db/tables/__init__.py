"""All tables of bai-hub; importing this package registers them in ``metadata``."""

from . import (
    accounts,
    apps,
    callbacks,
    cluster,
    external_identities,
    folders,
    idle_checks,
    mails,
    one_time_codes,
    operations,
    scheduling,
    self_service,
    sessions,
    ssh_keys,
    suspensions,
    usage,
)
from .base import metadata

__all__ = [
    "accounts",
    "apps",
    "callbacks",
    "cluster",
    "external_identities",
    "folders",
    "idle_checks",
    "mails",
    "metadata",
    "one_time_codes",
    "operations",
    "scheduling",
    "self_service",
    "sessions",
    "ssh_keys",
    "suspensions",
    "usage",
]
