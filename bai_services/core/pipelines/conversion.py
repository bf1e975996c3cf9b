"""Convert pipelines from and to the formats of other programs."""

from __future__ import annotations

from enum import StrEnum

from ..coded_text import CodedText, refusal
from ..errors import InvalidRequest
from ..refusal_texts import RefusalText
from ..yaml_sections import read_sections
from .definition import VERSION
from .elyra import convert_elyra, write_elyra
from .fasttrack import convert_fasttrack, write_fasttrack
from .parsing import MAX_BYTES, MAX_NODES, parse_pipeline


class Format(StrEnum):
    BAI = "bai"
    ELYRA = "elyra"  # JSON files *.pipeline
    FASTTRACK = "fasttrack"


def format_of(text: str) -> Format:
    """Return the format of a text: JSON is Elyra's format; YAML formats differ in the key
    ``version``.

    The run time grows with the size of the text, so call this function outside the event loop.

    Raises
    ------
    InvalidRequest
        If the text is not valid YAML, or exceeds a limit.
    """
    if text.lstrip()[:1] in ("{", "["):
        return Format.ELYRA
    version = read_sections(text, MAX_BYTES, MAX_NODES, _problem, lambda r: r.take_text("version"))
    return Format.BAI if version == str(VERSION) else Format.FASTTRACK


def convert(text: str, name: str, target: Format) -> str:
    """Return a pipeline in another format.

    ``name`` is the name of the file; it is used if the pipeline has no name. A text that has the
    target format is validated and returned unchanged. Call this function outside the event loop.

    Raises
    ------
    InvalidRequest
        If the text is not a valid pipeline, or has features that the target format does not have.
    """
    source = format_of(text)
    if source is Format.ELYRA:
        yaml_text = convert_elyra(text, name)
    elif source is Format.FASTTRACK:
        yaml_text = convert_fasttrack(text, name)
    else:
        yaml_text = text
    definition = parse_pipeline(yaml_text)
    if source is target:
        return text
    if target is Format.ELYRA:
        return write_elyra(definition)
    return write_fasttrack(definition) if target is Format.FASTTRACK else yaml_text


def _problem(line: int, text: CodedText) -> InvalidRequest:
    problem = refusal(RefusalText.LINE_PROBLEM, text, line=line)
    return InvalidRequest(problem, field="definition", line=line)
