"""The settings of the Hub and of agents on the page of the system."""

from __future__ import annotations

import pytest

from tests.hub import RunningHub

from .conftest import Opener
from .entities_page import Entities

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


async def test_settings_of_the_hub_and_of_the_agent_are_shown(
    hub: RunningHub, opened: Opener[Entities]
) -> None:
    ui = await opened(Entities, "monitor", "/system")
    section = ui.page.get_by_role("region", name="Settings of the Hub and agents")
    row = section.get_by_role("row")
    sites = row.filter(has_text="BaiAuthenticator.signed_token_sites").filter(has_text="campus")
    await sites.get_by_text("Configuration file").wait_for()
    await (
        row.filter(has_text="BaiAuthenticator.hub_token_file")
        .get_by_text("Hidden")
        .first.wait_for()
    )
    await ui.filter_by("Kind", "Agent")
    await row.filter(has_text="AgentApp.engine").get_by_text("process").first.wait_for()
