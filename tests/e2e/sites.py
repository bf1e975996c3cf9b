"""Sites: resource groups with the address of a reverse proxy of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.sessions import JSON, checked
from tests.hub import RunningHub
from tests.testbed.forwarder import Forwarder, forwarding


@contextmanager
def site_of(hub: RunningHub, session: JSON, host: str = "127.0.0.1") -> Iterator[Forwarder]:
    """Give the resource group of a session the address of a reverse proxy during the block.

    ``host``: a name of this machine. For browsers, ``localhost`` is another site than the Hub's
    127.0.0.1.
    """
    admin = hub.rest("admin")

    def set_address(address: str | None) -> None:
        body = {"scheduler_opts_changes": {"proxy_address": address}}
        checked(admin.patch(f"/resource-groups/{session['resource_group']}", json=body), 200)

    with forwarding(hub.port) as site:
        site.host = host
        set_address(site.url)
        try:
            yield site
        finally:
            set_address(None)
