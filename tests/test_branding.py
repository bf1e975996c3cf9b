"""The brand of the installation, from the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from bai_services.branding import Brand, read_brand


def test_brand_is_read_from_the_environment(tmp_path: Path) -> None:
    assert read_brand({}) == Brand()
    logo = tmp_path / "logo.svg"
    logo.write_text("<svg/>")
    brand = read_brand(
        {"BAI_BRAND_NAME": " ACME ", "BAI_BRAND_COLOR": "#C01000", "BAI_BRAND_LOGO": str(logo)}
    )
    assert brand == Brand("ACME", "#C01000", logo)
    assert brand.dark_color == "#a30d00"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("BAI_BRAND_NAME", "x" * 41),
        ("BAI_BRAND_NAME", "two\nlines"),
        ("BAI_BRAND_COLOR", "red; }"),
        ("BAI_BRAND_COLOR", "#12345"),
        ("BAI_BRAND_LOGO", "/no/such/logo.svg"),
        ("BAI_BRAND_LOGO", "/etc/passwd"),
    ],
)
def test_an_invalid_brand_is_rejected(name: str, text: str) -> None:
    with pytest.raises(SystemExit, match=name):
        read_brand({name: text})
