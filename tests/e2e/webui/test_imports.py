"""The page of imports: a link is shown, confirmed and fetched, and a session opens its file."""

from __future__ import annotations

import io
import secrets
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.e2e.sessions import checked
from tests.hub import RunningHub

from .conftest import Opener
from .entities_page import Entities

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

USER = "user2"
NOTEBOOK = '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'


@contextmanager
def site() -> Iterator[tuple[str, list[str]]]:
    """A web site with one archive; yield its URL and the paths of its requests."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("week/a.ipynb", NOTEBOOK)
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(buffer.getvalue())))
            self.end_headers()
            self.wfile.write(buffer.getvalue())

        def log_message(self, *_: object) -> None:
            """Do not write a log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", paths
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.checklist("IMP-01", "IMP-03", "IMP-07")
async def test_link_is_confirmed_imported_and_opened(
    hub: RunningHub, opened: Opener[Entities]
) -> None:
    tag = f"course-{secrets.token_hex(3)}"
    with hub.rest(USER) as rest, site() as (url, paths):
        ui = await opened(Entities, USER, f"/import?repo={url}/{tag}.zip&path=week/a.ipynb")
        await ui.page.get_by_text("This source comes from a link.").wait_for()
        await ui.page.get_by_text(f"Archive: {url}/{tag}.zip").wait_for()
        await ui.page.get_by_text("127.0.0.1", exact=True).wait_for()
        assert paths == []
        await ui.page.get_by_text("Link or badge for this source").click()
        badge = await ui.page.get_by_text("[Open in").inner_text()
        assert badge.endswith(f"{tag}.zip&path=week%2Fa.ipynb)")
        await ui.page.get_by_text("<a href=").wait_for()
        assert checked(rest.get("/folder-imports", params={"folder": tag}), 200)["items"] == []
        await ui.page.get_by_role("button", name="Import", exact=True).click()
        try:
            start = ui.page.get_by_role("button", name="Start a session")
            await start.click()
            link = ui.page.get_by_role("link", name="Open the files")
            await link.wait_for()
            address = str(await link.get_attribute("href"))
            assert address.endswith(f"/lab/tree/{tag}/week/a.ipynb")
            (made,) = checked(rest.get("/folder-imports", params={"folder": tag}), 200)["items"]
            assert (made["status"], made["files"]) == ("done", 1)
        finally:
            for session in rest.get("/sessions", params={"owner": USER}).json()["items"]:
                if tag in {mount["vfolder"] for mount in session["mounts"]}:
                    rest.delete(f"/sessions/{session['id']}")
            rest.delete(f"/vfolders/{tag}")


@pytest.mark.checklist("IMP-04", "IMP-05", "IMP-08")
async def test_pages_of_sites_are_recognized_and_private_addresses_refused(
    hub: RunningHub, opened: Opener[Entities]
) -> None:
    ui = await opened(Entities, USER, "/import")
    field = ui.page.get_by_label("URL", exact=True)
    for given, shown in (
        ("https://github.com/a/b/tree/dev", "Git repository: https://github.com/a/b.git (dev)"),
        ("https://gitlab.com/a/b", "Git repository: https://gitlab.com/a/b.git"),
        (
            "https://github.com/a/b/blob/main/c.ipynb",
            "File: https://raw.githubusercontent.com/a/b/main/c.ipynb",
        ),
    ):
        await field.fill(given)
        await ui.page.get_by_text(shown, exact=True).wait_for()
    await field.fill("https://10.0.0.1/a.git")
    await ui.page.get_by_text("the address is not public").wait_for()
    assert await ui.page.get_by_role("button", name="Import", exact=True).is_disabled()
