"""The beginning of a prompt is found in any complete or partial body."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.serving.prompt_prefix import prompt_prefix


@given(text=st.text(max_size=40), other=st.text(max_size=20), size=st.integers(1, 30))
def test_prefix_depends_only_on_the_prompt(text: str, other: str, size: int) -> None:
    for name in ("messages", "prompt", "input"):
        prompt = [{"role": "user", "content": text}] if name == "messages" else text
        bodies = [
            json.dumps({"model": other, name: prompt, "stop": other}).encode(),
            json.dumps({"temperature": 1, name: prompt}, indent=1).encode(),
        ]
        expected = json.dumps(prompt).encode()[: size if name != "messages" else 1]
        for body in bodies:
            found = prompt_prefix(body, size, is_complete=True)
            assert found is not None
            assert found.startswith(expected[:size])


@given(body=st.binary(max_size=60), cut=st.integers(0, 60), size=st.integers(1, 30))
def test_partial_body_has_the_prefix_of_the_whole_one(body: bytes, cut: int, size: int) -> None:
    body = b'{"prompt": "' + body
    partial = prompt_prefix(body[:cut], size, is_complete=False)
    assert partial in (None, prompt_prefix(body, size, is_complete=True))
