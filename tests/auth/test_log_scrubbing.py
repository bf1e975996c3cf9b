"""Removal of secrets from the URLs in tornado's log lines."""

from __future__ import annotations

import logging

import pytest

from bai_auth.log_scrubbing import scrub_tornado_log, without_secrets


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "409 POST /hub/api/users/user/servers/lab?_xsrf=MTAw (127.0.0.1): exists",
            "409 POST /hub/api/users/user/servers/lab?_xsrf=[secret] (127.0.0.1): exists",
        ),
        ("GET /x?limit=5&token=a.b&page=2", "GET /x?limit=5&token=[secret]&page=2"),
        ("GET /hub/home?page=2", "GET /hub/home?page=2"),
    ],
)
def test_values_of_secret_parameters_are_replaced(text: str, expected: str) -> None:
    assert without_secrets(text) == expected


def test_log_lines_of_tornado_contain_no_secrets(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("tornado.general")
    before = list(logger.filters)
    scrub_tornado_log()
    try:
        logger.warning("%d %s", 403, "GET /hub/spawn?_xsrf=abc (10.0.0.1)")
    finally:
        logger.filters[:] = before
    assert "403 GET /hub/spawn?_xsrf=[secret] (10.0.0.1)" in caplog.text
    assert "abc" not in caplog.text
