"""The assets of the web UI that the manager serves, and their compressed variants."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from bai_services.webui.assets import WebUI

INDEX = '<head><meta name="bai-config" content="" /></head>'


@pytest.fixture
def built_ui(tmp_path: Path) -> Path:
    """A built UI with one script, which has a gzip variant but no Brotli variant."""
    assets = tmp_path / "assets"
    assets.mkdir()
    (tmp_path / "index.html").write_text(INDEX)
    (assets / "index-1a2b.js").write_bytes(b"start();")
    (assets / "index-1a2b.js.gz").write_bytes(gzip.compress(b"start();"))
    return tmp_path


def test_no_ui_is_loaded_without_a_build(tmp_path: Path) -> None:
    assert WebUI.load(tmp_path) is None


def test_assets_are_found_by_path_without_their_compressed_variants(built_ui: Path) -> None:
    ui = WebUI.load(built_ui)
    assert ui is not None
    assert list(ui.assets) == ["assets/index-1a2b.js"]
    assert ui.assets["assets/index-1a2b.js"].media_type == "text/javascript"


@pytest.mark.parametrize(
    ("accept_encoding", "encoding"),
    [
        ("gzip, deflate, br", "gzip"),
        ("br", ""),
        ("", ""),
        ("gzip;q=1.0", "gzip"),
        ("br, gzip; q=0", ""),
    ],
)
def test_best_variant_exists_and_is_accepted_by_the_client(
    built_ui: Path, accept_encoding: str, encoding: str
) -> None:
    ui = WebUI.load(built_ui)
    assert ui is not None
    chosen, content = ui.assets["assets/index-1a2b.js"].best(accept_encoding)
    assert chosen == encoding
    assert (gzip.decompress(content) if chosen else content) == b"start();"
