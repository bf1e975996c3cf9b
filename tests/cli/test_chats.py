"""`bai chat`: list, read, rename and delete chats."""

from __future__ import annotations

from tests.testbed.manager import Api

from .conftest import Bai


async def test_chats_are_listed_shown_renamed_and_deleted(bai: Bai, api: Api) -> None:
    messages = [{"role": "user", "text": "Hi"}, {"role": "assistant", "text": "Hello"}]
    body = {"cards": [{"endpoint": "llm", "model": "tiny", "messages": messages}]}
    made = await (await api.client("user")).post("/chats", body)
    listed = await bai("chat", "ls", by="user")
    assert "Hi" in listed.stdout and made["id"] in listed.stdout
    assert (await bai("chat", "ls", by="user2")).stderr == "no chats\n"
    shown = await bai("chat", "show", made["id"], by="user")
    assert "# llm tiny" in shown.stdout and "[assistant]" in shown.stdout
    assert (await bai("chat", "show", made["id"], by="user2")).code != 0
    renamed = await bai("chat", "rename", made["id"], "Ideas", "--json", by="user")
    assert renamed.document["title"] == "Ideas"
    assert (await bai("chat", "rm", made["id"], by="user")).code == 0
    assert (await bai("chat", "ls", by="user")).stderr == "no chats\n"
