"""Addresses of endpoints."""

from __future__ import annotations

import pytest

from bai_services.core.serving.names import EndpointAddresses


@pytest.mark.parametrize(
    ("domain", "url"),
    [("", "/services/bai-serve/chat/"), ("serve.example.org", "https://chat.serve.example.org/")],
)
def test_the_path_at_the_host_of_the_hub_does_not_depend_on_the_domain(
    domain: str, url: str
) -> None:
    # The chat page uses these paths, because it may call only its own host.
    addresses = EndpointAddresses("/services/bai-serve", domain)
    assert addresses.of("chat") == url
    assert addresses.path_of("chat") == "/services/bai-serve/chat/"
