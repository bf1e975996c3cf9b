"""Parsing and validation of the YAML file of `bai apply`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bai_services.cli.admin.declaration import PasswordSource, load_declaration
from bai_services.core.errors import InvalidRequest

USER = "users:\n- {username: Ann, email: Ann@Example.org, domain: lab"


def write(folder: Path, text: str) -> Path:
    path = folder / "hub.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_objects_are_loaded_by_section(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """\
domains:
  - name: lab
    total_resource_slots: {cpu: 4, mem: 8g, cuda.shares: 0.5}
    max_concurrent_sessions: null
projects:
  - name: vision
    domain: lab
    members: [ann, bob]
users:
  - username: Ann
    email: Ann@Example.org
    domain: lab
    allowed_client_ip: [10.0.0.1/8]
""",
    )
    found = load_declaration(path)
    assert {section: [item.name for item in items] for section, items in found.items()} == {
        "domains": ["lab"],
        "projects": ["lab/vision"],
        "users": ["ann"],
    }
    assert found["domains"][0].values == {
        "total_resource_slots": {"cpu": "4", "mem": "8g", "cuda.shares": "0.5"},
        "max_concurrent_sessions": None,
    }
    assert found["projects"][0].extras == {"members": ["ann", "bob"]}
    assert found["users"][0].values == {
        "email": "ann@example.org",
        "domain": "lab",
        "allowed_client_ip": ["10.0.0.0/8"],
    }


def test_empty_file_declares_nothing(tmp_path: Path) -> None:
    assert load_declaration(write(tmp_path, "# later\n")) == {}


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("servers: []", 1, "unknown section 'servers'"),
        ("domains:\n- name: a\n  colour: red", 3, "unknown field 'colour' of a domain"),
        ("domains:\n- name: a\n  is_active: maybe", 3, "is_active: 'maybe' is not true or false"),
        ("domains:\n- name: a\n  total_resource_slots: 4", 3, "is not a mapping of slot to limit"),
        ("domains:\n- name: a\n  total_resource_slots: {cpu: x}", 3, "cpu=x is not an amount"),
        ("domains:\n- name: a\n  name: b", 3, "duplicate key 'name'"),
        ("domains:\n- {name: a}\n- {name: a}", 3, "duplicate domain a; the first is at .*:2"),
        ("domains:\n- description: a", 2, "required field 'name' of this domain is missing"),
        ("projects:\n- name: a", 2, "required field 'domain' of this project is missing"),
        ("domains: {a: b}", 1, "domains must be a list"),
        ("domains:\n- a", 2, "expected a mapping"),
        ("- a", 1, "expected a mapping"),
        ("domains: [\n", 2, "invalid YAML"),
        ("domains:\n- name: !!python/name:os.system x", 2, "invalid YAML"),
        ("resource_groups:\n- name: g\n  links: {planet: [a]}", 2, "links must map domain"),
        ("resource_groups:\n- name: g\n  links: {project: [a]}", 2, "project as DOMAIN/NAME"),
        (USER + ",\n  allowed_client_ip: [nowhere]}", 3, "'nowhere' is not a network"),
        (USER + ", password_env: MISSING}", 2, "variable MISSING contains no password"),
        (USER + ", password_file: missing}", 2, "missing: No such file"),
        (USER + ", password_file: latin-1}", 2, "latin-1: not a UTF-8 text file$"),
        ("images:\n- name: a\n  colour: red", 3, "unknown field 'colour' of an image;"),
        (USER + ", password: secret1!}", 2, "unknown field 'password' of a user"),
        (USER + ", password_env: P, generate_password: true}", 2, "are mutually exclusive"),
    ],
    ids=lambda value: value.replace("\n", " ")[:60] if isinstance(value, str) else None,
)
def test_error_names_file_and_line(tmp_path: Path, text: str, line: int, problem: str) -> None:
    path = write(tmp_path, text)
    (tmp_path / "latin-1").write_text("geheim-ü", encoding="latin-1")
    with pytest.raises(InvalidRequest, match=problem) as caught:
        load_declaration(path, {"P": "secret1!"})
    assert caught.value.message.startswith(f"{path}:{line}: ")
    assert caught.value.details == {"file": str(path), "line": line}


def test_error_names_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=f"{tmp_path}: Is a directory") as caught:
        load_declaration(tmp_path)
    assert caught.value.details == {"file": str(tmp_path)}


def test_initial_password_is_loaded_and_hidden_in_repr(tmp_path: Path) -> None:
    (tmp_path / "ann").write_text(" the first one \n", encoding="utf-8")
    for source, expected in [
        ("password_file: ann", " the first one "),
        ("password_env: ANN", "the first one"),
        ("generate_password: true", PasswordSource.GENERATED),
        ("generate_password: false", None),
    ]:
        path = write(tmp_path, f"{USER}, {source}}}")
        (item,) = load_declaration(path, {"ANN": "the first one"})["users"]
        assert item.password == expected
        assert "first one" not in repr(item)
