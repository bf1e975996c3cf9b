"""A small server that replaces Jupyter in a session; the path of a request names an action."""

from __future__ import annotations

from typing import Any

import httpx

from bai_services.engines.base import Running

SOURCE = """
import http.server, json, os, pathlib, subprocess, sys, urllib.parse
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        try:
            answer = getattr(self, url.path.rsplit("/", 1)[-1])(**query)
            status = 200
        except Exception as error:
            answer, status = repr(error), 418
        self.send_response(status); self.end_headers()
        self.wfile.write(json.dumps(answer).encode())
    def api(self): return "here"
    def environ(self): return dict(os.environ)
    def read(self, path): return pathlib.Path(path).read_text()
    def write(self, path): return pathlib.Path(path).write_text("written")
    def ls(self, path): return sorted(os.listdir(path))
    def whoami(self): return [os.getuid(), os.getcwd(), os.uname().nodename]
    def run(self, command):
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
        return [done.returncode, done.stdout + done.stderr]
    def fork(self):
        code = "import os,time; os.setsid(); time.sleep(600)"
        subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        return "forked"
    def say(self, text): print(text, flush=True); return "said"
    def log_message(self, *args): pass
host, port = os.environ["JUPYTERHUB_SERVICE_URL"].split("/")[2].rsplit(":", 1)
http.server.ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
"""


async def ask(running: Running, what: str, **query: str) -> tuple[int, Any]:
    """Ask the server of a session for an action; return the status and the body of the response."""
    async with httpx.AsyncClient(timeout=10) as client:
        response = await client.get(f"{running.url}/user/ada/{what}", params=query)
    return response.status_code, response.json()
