"""What is malformed in a request is said all at once."""

from __future__ import annotations

import pytest

from bai_services.client import Client
from bai_services.core import errors
from tests.testbed.agent_voice import AgentVoice


async def test_all_malformed_fields_are_reported_together(agent: AgentVoice, user: Client) -> None:
    wish = {
        "name": "!",
        "resources": {"cpu": "many", "mem": "1g"},
        "environ": {"BAI_X": "1"},
        "preopen_ports": [80],
    }
    with pytest.raises(errors.InvalidRequest) as refused:
        await user.post("/sessions", wish)
    problems = refused.value.details["problems"]
    fields = [problem["field"] for problem in problems]
    assert fields == ["name", "resources.cpu", "environ", "preopen_ports"]
    assert all(problem["problem"] in refused.value.message for problem in problems)
