"""The YAML of `bai apply`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bai_services.cli.admin.declaration import GENERATED, read
from bai_services.core.errors import InvalidRequest

USER = "users:\n- {username: Ann, email: Ann@Example.org, domain: lab"


def write(folder: Path, text: str) -> Path:
    path = folder / "hub.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_is_read(tmp_path: Path) -> None:
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
    found = read(path)
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


def test_an_empty_file_describes_nothing(tmp_path: Path) -> None:
    assert read(write(tmp_path, "# later\n")) == {}


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("servers: []", 1, "no section 'servers'"),
        ("domains:\n- name: a\n  colour: red", 3, "a domain has no 'colour'"),
        ("domains:\n- name: a\n  is_active: maybe", 3, "is_active: 'maybe' is not true or false"),
        ("domains:\n- name: a\n  total_resource_slots: 4", 3, "is not a map of slot to limit"),
        ("domains:\n- name: a\n  total_resource_slots: {cpu: x}", 3, "cpu=x is not an amount"),
        ("domains:\n- name: a\n  name: b", 3, "'name' stands here twice"),
        ("domains:\n- {name: a}\n- {name: a}", 3, "described at .*:2 already"),
        ("domains:\n- description: a", 2, "this domain lacks 'name'"),
        ("projects:\n- name: a", 2, "this project lacks 'domain'"),
        ("domains: {a: b}", 1, "domains is not a list"),
        ("domains:\n- a", 2, "not a map of names"),
        ("- a", 1, "not a map of names"),
        ("domains: [\n", 2, "this is no YAML"),
        ("domains:\n- name: !!python/name:os.system x", 2, "this is no YAML"),
        ("resource_groups:\n- name: g\n  links: {planet: [a]}", 2, "links are lists under"),
        ("resource_groups:\n- name: g\n  links: {project: [a]}", 2, "linked as DOMAIN/NAME"),
        (USER + ",\n  allowed_client_ip: [nowhere]}", 3, "'nowhere' is not a network"),
        (USER + ", password_env: MISSING}", 2, "variable MISSING holds no password"),
        (USER + ", password_file: missing}", 2, "missing: No such file"),
        (USER + ", password: secret1!}", 2, "a user has no 'password'"),
        (USER + ", password_env: P, generate_password: true}", 2, "exclude each other"),
    ],
    ids=lambda value: value.replace("\n", " ")[:60] if isinstance(value, str) else None,
)
def test_what_is_wrong_is_named_with_its_line(
    tmp_path: Path, text: str, line: int, problem: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InvalidRequest, match=problem) as caught:
        read(path, {"P": "secret1!"})
    assert caught.value.message.startswith(f"{path}:{line}: ")
    assert caught.value.details == {"file": str(path), "line": line}


def test_a_password_is_read_from_elsewhere_and_never_shown(tmp_path: Path) -> None:
    (tmp_path / "ann").write_text(" the first one \n", encoding="utf-8")
    for way, expected in [
        ("password_file: ann", " the first one "),
        ("password_env: ANN", "the first one"),
        ("generate_password: true", GENERATED),
        ("generate_password: false", None),
    ]:
        path = write(tmp_path, f"{USER}, {way}}}")
        (item,) = read(path, {"ANN": "the first one"})["users"]
        assert item.password == expected
        assert "first one" not in repr(item)
