"""Settings of an installation: rules, and equality after a round trip through the file."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bai_services.core.errors import InvalidRequest
from bai_services.core.installation.settings import (
    EngineKind,
    Installation,
    Ports,
    StorageHost,
    Tls,
    moved,
    parse,
    render,
)

NAMES = st.sampled_from(["local", "fast-1", "a_b", "x" * 60, "0"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))
TLS = st.one_of(
    st.fixed_dictionaries(
        {"tls": st.just(Tls.CERTIFICATE), "certificate": PATHS, "certificate_key": PATHS}
    ),
    st.fixed_dictionaries(
        {
            "tls": st.sampled_from([Tls.CADDY, Tls.TRAEFIK]),
            "acme_email": st.just("admin@example.org"),
        }
    ),
    st.just({"tls": Tls.EXTERNAL}),
)
DATABASES = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {
            "database": NAMES.map(lambda name: f"postgresql://bai@db.example.org/{name}"),
            "database_password_file": st.one_of(st.just(""), PATHS),
        }
    ),
)
ENVIRONMENT_NAMES = st.sampled_from(["BAI_BRAND_NAME", "OTEL_EXPORTER_OTLP_ENDPOINT"])
TEXTS = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=30)


@st.composite
def installations(draw: st.DrawFn) -> Installation:
    storage = draw(
        st.lists(
            st.builds(StorageHost, NAMES, NAMES, PATHS), max_size=3, unique_by=lambda h: h.name
        )
    )
    ports = draw(st.lists(st.integers(1024, 65535), min_size=5, max_size=5, unique=True))
    return Installation(
        host=draw(st.sampled_from(["hub.example.org", "localhost", "10.0.0.1", "a-b.example"])),
        state=draw(PATHS),
        port=draw(st.integers(1, 1023)),
        engine=draw(st.sampled_from(list(EngineKind))),
        storage=tuple(storage),
        ports=Ports(*ports),
        environment=draw(st.dictionaries(ENVIRONMENT_NAMES, TEXTS, max_size=1)),
        **draw(TLS),
        **draw(DATABASES),
    )


@settings(max_examples=20)
@given(installations())
def test_the_file_has_all_settings(installation: Installation) -> None:
    assert parse(render(installation)) == installation


@given(st.text(max_size=300))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse(text)


VALID = {
    "address": 'host = "hub.example.org"',
    "tls": 'mode = "external"',
    "service": 'state = "/srv/state"',
}

MANAGERS = "host = 'h'\ninternal = '10.0.0.5'"


def test_several_managers_need_a_load_balancer_and_postgresql() -> None:
    sections = {
        **VALID,
        "address": f"{MANAGERS}\nmanagers = '10.0.0.9'",
        "database": "url = 'postgresql://bai@db/bai'",
    }
    found = parse("".join(f"[{name}]\n{content}\n" for name, content in sections.items()))
    assert (found.internal, found.managers) == ("10.0.0.5", "10.0.0.9")
    assert parse(render(found)) == found


@pytest.mark.parametrize(
    "section, lines, field",
    [
        ("address", 'host = "hub example"', "address.host"),
        ("address", 'host = "h"\nport = 0', "address.port"),
        ("address", 'host = "h"\nport = true', "address.port"),
        ("address", 'host = "h"\nprot = 443', "address.prot"),
        ("address", 'host = "h"\ninternal = "hub"', "address.internal"),
        ("address", 'host = "h"\ninternal = "0.0.0.0"', "address.internal"),
        ("address", 'host = "h"\ninternal = "fd00::5"', "address.internal"),
        ("address", 'host = "h"\nmanagers = "10.0.0.9"', "address.managers"),
        ("address", f"{MANAGERS}\nmanagers = '10.0.0.5'", "address.managers"),
        ("address", f"{MANAGERS}\nmanagers = 'balancer'", "address.managers"),
        ("address", f"{MANAGERS}\nmanagers = '10.0.0.9'", "address.managers"),  # with SQLite
        ("tls", 'mode = "certificate"', "tls.certificate"),
        ("tls", 'mode = "caddy"', "tls.email"),
        ("tls", 'mode = "odd"', "tls.mode"),
        ("database", 'url = "mysql://db/bai"', "database.url"),
        ("database", 'url = "postgresql://bai:secret@db/bai"', "database.url"),
        ("database", 'password_file = "/p"', "database.url"),
        ("database", 'url = "postgresql://bai@db/bai?password=x"', "database.url"),
        ("database", 'url = "postgresql://bai@db/bai?a=b&sslpassword="', "database.url"),
        (
            "database",
            'url = "postgresql://db/bai"\nhub_url = "postgresql://db/bai"',
            "database.hub_url",
        ),
        ("service", 'state = "srv"', "service.state"),
        ("service", 'state = "/srv/a b"', "service.state"),
        ("service", 'state = "/srv/../etc"', "service.state"),
        ("service", 'state = "/srv"\nuser = "a b"', "service.user"),
        ("ports", "hub = 8091", "ports"),
        ("environment", 'PATH = "/bin"', "environment.PATH"),
        ("environment", 'BAI_HOME = "/srv"', "environment.BAI_HOME"),
        ("storage", 'name = "a"', "storage"),
    ],
)
def test_an_invalid_setting_is_named(section: str, lines: str, field: str) -> None:
    sections = {**VALID, section: lines}
    text = "".join(f"[{name}]\n{content}\n" for name, content in sections.items())
    with pytest.raises(InvalidRequest) as caught:
        parse(text)
    assert caught.value.details["field"] == field


def test_another_machine_has_other_paths() -> None:
    host = StorageHost("fast", "btrfs", "/mnt/fast")
    original = Installation(host="a", state="/a", tls=Tls.EXTERNAL, storage=(host,))
    result = moved(original, state="/b", storage={"fast": "/mnt/other"}, host="b")
    assert (result.state, result.host) == ("/b", "b")
    assert result.storage == (StorageHost("fast", "btrfs", "/mnt/other"),)
    with pytest.raises(InvalidRequest):
        moved(original, storage={"slow": "/mnt/other"})


def test_the_hub_has_its_own_database() -> None:
    url = "postgresql://bai@/bai?host=/run/postgresql"
    installation = Installation(host="a", state="/a", tls=Tls.EXTERNAL, database=url)
    assert (
        installation.hub_database_url() == "postgresql://bai@/bai_jupyterhub?host=/run/postgresql"
    )
