"""Hub URL and credential, loaded from the saved profile and from environment variables."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from bai_services.cli import profile
from bai_services.cli.profile import Profile, folder, hub_url
from bai_services.client import Keypair, Token
from bai_services.core.errors import InvalidRequest, NotSignedIn

URL = "http://hub.example:8000"
SIGNED_IN = Profile(URL, Token("saved-token"), "ann")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"BAI_CONFIG_DIR": str(tmp_path / "config")}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("https://hub.example/", "https://hub.example"),
        ("https://hub.example/lab/", "https://hub.example/lab"),
        ("https://hub.example/lab/services/bai", "https://hub.example/lab"),
        ("https://hub.example/services/bai/api/v1", "https://hub.example"),
        ("https://hub.example/hub/login?next=%2Fhub%2F", "https://hub.example"),
        ("https://hub.example/hubs", "https://hub.example/hubs"),
        ("https://hub.example/lab/hub", "https://hub.example/lab"),
        ("https://hub.example/user/ann/lab/tree/hub", "https://hub.example"),
        ("https://hub.example/a/user/ann/my-lab/lab", "https://hub.example/a"),
        ("https://hub.example/a/services/bai/data/services/bai/x", "https://hub.example/a"),
        ("https://hub.example/services/mlflow/", "https://hub.example"),
        (" http://[::1]:8000 ", "http://[::1]:8000"),
    ],
)
def test_url_of_a_page_of_a_hub_is_reduced_to_the_base_url_of_the_hub(
    given: str, expected: str
) -> None:
    assert hub_url(given) == expected


@pytest.mark.parametrize(
    "given",
    ["hub.example", "ftp://hub.example", "http://", "http://ann:pw@hub.example", "http://a:b", ""],
)
def test_invalid_url_is_rejected(given: str) -> None:
    with pytest.raises(InvalidRequest):
        hub_url(given)


@pytest.mark.parametrize("credential", [Token("a-token"), Keypair("AK", "a-secret")])
def test_saved_profile_is_loaded(environ: dict[str, str], credential: Token | Keypair) -> None:
    saved = Profile(URL, credential, "ann")
    profile.save(saved, environ)
    assert profile.load(environ) == saved


def test_file_is_readable_by_its_owner_only(environ: dict[str, str]) -> None:
    file = profile.save(SIGNED_IN, environ)
    profile.save(SIGNED_IN, environ)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [path.name for path in file.parent.iterdir()] == ["config.json"]


def test_delete_saved_deletes_the_profile(environ: dict[str, str]) -> None:
    profile.save(SIGNED_IN, environ)
    assert (profile.delete_saved(environ), profile.delete_saved(environ)) == (True, False)
    with pytest.raises(NotSignedIn):
        profile.load(environ)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"BAI_TOKEN": "t"}, Profile(URL, Token("t"))),
        ({"BAI_ACCESS_KEY": "a", "BAI_SECRET_KEY": "s"}, Profile(URL, Keypair("a", "s"))),
        (
            {"BAI_URL": "http://other.example/", "BAI_TOKEN": "t"},
            Profile("http://other.example", Token("t")),
        ),
        ({"BAI_URL": URL + "/hub/home"}, SIGNED_IN),
    ],
    ids=["token", "keypair", "another hub with a token", "same hub"],
)
def test_environment_overrides_the_file(
    environ: dict[str, str], variables: dict[str, str], expected: Profile
) -> None:
    profile.save(SIGNED_IN, environ)
    assert profile.load(environ | variables) == expected


def test_saved_credential_is_not_sent_to_another_hub(environ: dict[str, str]) -> None:
    profile.save(SIGNED_IN, environ)
    with pytest.raises(NotSignedIn, match="other.example"):
        profile.load(environ | {"BAI_URL": "http://other.example"})


def test_access_key_without_secret_key_is_rejected(environ: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="only one of them is set"):
        profile.load(environ | {"BAI_URL": URL, "BAI_ACCESS_KEY": "a"})


@pytest.mark.parametrize("content", ["{", "[]", '{"url": 1}', "\x00"])
def test_error_names_an_invalid_file(environ: dict[str, str], content: str) -> None:
    file = profile.save(SIGNED_IN, environ)
    file.write_text(content)
    with pytest.raises(InvalidRequest, match=r"config\.json is invalid"):
        profile.load(environ)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"BAI_CONFIG_DIR": "/a"}, Path("/a")),
        ({"XDG_CONFIG_HOME": "/b"}, Path("/b/bai")),
        ({"BAI_CONFIG_DIR": "/a", "XDG_CONFIG_HOME": "/b"}, Path("/a")),
        ({}, Path.home() / ".config/bai"),
    ],
)
def test_configuration_folder_is_taken_from_the_environment(
    environ: dict[str, str], expected: Path
) -> None:
    assert folder(environ) == expected
