"""Imports of models: states, sources and files."""

from __future__ import annotations

from typing import Any

import pytest

from bai_services.core.errors import InvalidRequest, InvalidTransition, TooLarge
from bai_services.core.imports.lifecycle import (
    ENDED,
    TRANSITIONS,
    ImportEvent,
    ImportStatus,
    next_status,
    valid_statuses,
)
from bai_services.core.models.cards import card_content
from bai_services.core.models.imports import (
    RemoteFile,
    Source,
    SourceKind,
    check_source,
    checksum_of_etag,
    chosen_files,
    definition_of,
    is_safe_path,
    parse_info,
)
from bai_services.core.sessions.callbacks import AllowedTargets

SHA = "a" * 40
ALL = AllowedTargets()


def test_only_failed_imports_restart_and_every_unfinished_one_can_be_cancelled() -> None:
    again = {pair for pair in TRANSITIONS if pair[0] in ENDED}
    assert again == {
        (ImportStatus.FAILED, ImportEvent.RETRIED),
        (ImportStatus.FAILED, ImportEvent.RESUBMITTED),
    }
    assert valid_statuses(ImportEvent.CANCELLED) == set(ImportStatus) - ENDED
    with pytest.raises(InvalidTransition):
        next_status(ImportStatus.DONE, ImportEvent.CANCELLED)


def test_source_is_read_from_a_request() -> None:
    model = check_source({"repository": "google/gemma-2-2b", "patterns": ["*.json"]}, ALL)
    assert model == Source(SourceKind.HUGGINGFACE, "google/gemma-2-2b", "main", ("*.json",))
    assert model.folder == "gemma-2-2b"
    file = check_source({"url": "https://example.org/a/b%20c.gguf?x=1", "sha256": "A" * 64}, ALL)
    assert (file.kind, file.sha256, file.folder) == (SourceKind.URL, "a" * 64, "b-c.gguf")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        pytest.param({}, "repository", id="nothing"),
        pytest.param({"repository": "a/b", "url": "https://a.org/b"}, "repository", id="both"),
        pytest.param({"repository": "a/../b"}, "repository", id="parent"),
        pytest.param({"repository": "a/b/c"}, "repository", id="three parts"),
        pytest.param({"repository": "a/b", "revision": "x?y"}, "revision", id="revision"),
        pytest.param({"repository": "a/b", "patterns": [""]}, "patterns", id="empty pattern"),
        pytest.param({"url": "https://127.0.0.1/x"}, "url", id="private address"),
        pytest.param({"url": "https://[::1/x"}, "url", id="no URL"),
        pytest.param({"url": "https://user:secret@example.org/x"}, "url", id="password"),
        pytest.param({"url": "https://example.org/"}, "url", id="no file name"),
        pytest.param({"url": "https://example.org/%2e%2e"}, "url", id="parent as file name"),
        pytest.param({"url": "https://example.org/x", "sha256": "12"}, "sha256", id="short hash"),
    ],
)
def test_wrong_source_is_rejected(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_source(given, ALL)
    assert caught.value.details["field"] == field


def test_source_can_be_restricted() -> None:
    only = AllowedTargets.parse("hub.example.org", "10.0.0.0/8")
    assert check_source({"url": "http://10.1.2.3/m.bin"}, only).name == "http://10.1.2.3/m.bin"
    for targets in (only, AllowedTargets.parse("none", "")):
        with pytest.raises(InvalidRequest, match="imports"):
            check_source({"url": "https://example.org/x"}, targets)


def answer(**fields: Any) -> dict[str, Any]:
    return {"sha": SHA, "siblings": [{"rfilename": "config.json", "size": 2}], **fields}


def test_description_of_a_model_is_parsed() -> None:
    info = parse_info(
        answer(
            siblings=[
                {"rfilename": "w/a.safetensors", "lfs": {"sha256": "b" * 64, "size": 9}},
                {"rfilename": "config.json"},
            ],
            pipeline_tag="text-generation",
            library_name="transformers",
            tags=["llama", "license:mit", 5],
            cardData={"license": "mit"},
            author="a\u202eb",
        )
    )
    assert info.files == [RemoteFile("w/a.safetensors", 9, "b" * 64), RemoteFile("config.json")]
    text = definition_of(
        Source(SourceKind.HUGGINGFACE, "org/name"), "name", info.commit, info.metadata
    )
    card = card_content(text, "")
    assert (card.problem, card.name, card.title, card.version) == ("", "name", "org/name", SHA[:12])
    assert (card.task, card.frameworks, card.labels) == (
        "text-generation", ("transformers",), ("llama",),
    )  # fmt: skip
    assert (card.license, card.author) == ("mit", "")


def with_file(name: str, **fields: Any) -> dict[str, Any]:
    return answer(siblings=[{"rfilename": name, **fields}])


@pytest.mark.parametrize(
    "wrong, reason",
    [
        pytest.param([], "not an object", id="list"),
        pytest.param(answer(sha="main"), "no commit", id="branch in place of a commit"),
        pytest.param(answer(siblings=None), "no list of files", id="no files"),
        pytest.param(with_file("../x"), "name of a file is not valid", id="parent directory"),
        pytest.param(with_file("/x"), "name of a file is not valid", id="absolute path"),
        pytest.param(with_file("a\\b"), "name of a file is not valid", id="backslash"),
        pytest.param(with_file("\ud800"), "name of a file is not valid", id="lone surrogate"),
        pytest.param(with_file("x", size=-1), "size of a file is not valid", id="negative size"),
        pytest.param(with_file("x", size=10**4000), "size of a file is not valid", id="huge size"),
        pytest.param(
            with_file("x", lfs={"size": 1.5}), "size of a file is not valid", id="fractional size"
        ),
        pytest.param(
            answer(siblings=[{"rfilename": f"f{n}"} for n in range(2001)]),
            "more than 2000 files",
            id="too many files",
        ),
    ],
)
def test_wrong_description_is_rejected(wrong: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_info(wrong)


def test_files_are_chosen_by_patterns_and_limited() -> None:
    files = [RemoteFile("b.bin", 5), RemoteFile("a.json", 1), RemoteFile("x/c.json", 1)]
    assert [file.path for file in chosen_files(files, (), 7)] == ["a.json", "b.bin", "x/c.json"]
    assert [file.path for file in chosen_files(files, ("*.json",), 2)] == ["a.json", "x/c.json"]
    with pytest.raises(TooLarge):
        chosen_files(files, (), 6)
    with pytest.raises(InvalidRequest):
        chosen_files(files, ("nothing",), 7)


def test_checksums_are_read_from_etags_and_unsafe_paths_detected() -> None:
    assert checksum_of_etag(f'W/"{"C" * 64}"') == "c" * 64
    assert checksum_of_etag('"12-abc"') == ""
    assert is_safe_path("a/b.c") and not is_safe_path("a//b") and not is_safe_path("x" * 300)
