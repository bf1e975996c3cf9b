"""Reports of agents about storage hosts."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bai_services.core.cluster.doctor import compare_storage
from bai_services.core.cluster.storage_checks import storage_problems
from bai_services.core.installation.findings import error, ok


@pytest.mark.parametrize(
    "reported, expected",
    [
        pytest.param(None, {}, id="an agent of an earlier version checks nothing"),
        pytest.param({"a": "", "b": ""}, {}, id="all hosts work"),
        pytest.param({}, {"a": "not-checked", "b": "not-checked"}, id="nothing is checked yet"),
        pytest.param({"a": ""}, {"b": "not-checked"}, id="a new host is not checked yet"),
        pytest.param({"a": "read-only", "b": ""}, {"a": "read-only"}, id="one host fails"),
        pytest.param({"a": "", "b": "burning"}, {"b": "failing"}, id="a problem of later versions"),
        pytest.param({"a": "", "b": "", "c": "failing"}, {}, id="a host that was removed"),
    ],
)
def test_hosts_work_only_if_the_agent_has_checked_them(
    reported: Mapping[str, str] | None, expected: Mapping[str, str]
) -> None:
    assert storage_problems(["a", "b"], reported) == expected


def test_doctor_reports_a_failing_host_once() -> None:
    problems = {"a": "read-only", "b": "not-mounted"}
    found = [error("storage a", "/a is mounted read-only", "mount it"), ok("storage b", "works")]
    (other,) = compare_storage(problems, found)
    assert other.check == "storage b"
    assert other.message == (
        "no session with folders on this storage host is placed here (not-mounted)"
    )
