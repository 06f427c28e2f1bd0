"""A hub on loopback that speaks as much of the Hugging Face Hub's HTTP as its client needs to push and load a model."""

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FakeHub:
    """One repository; ``files`` holds what was pushed, ``asked`` every request."""

    def __init__(self):
        self.files, self.asked = {}, []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    @property
    def commit(self):
        return hashlib.sha1(json.dumps(sorted(self.files)).encode()).hexdigest()

    def answer(self, method, path, body):
        """``(status, headers, content)``."""
        path = path.split("?")[0]
        if path == "/api/repos/create":
            return 200, {}, {"url": f"{self.endpoint}/me/posts", "id": "me/posts"}
        if "/preupload/" in path:
            # Every file goes into the commit itself: no storage for large files is needed.
            asked = json.loads(body)["files"]
            return (
                200,
                {},
                {"files": [{"path": each["path"], "uploadMode": "regular", "shouldIgnore": False} for each in asked]},
            )
        if "/commit/" in path:
            for line in body.splitlines():
                told = json.loads(line)
                if told["key"] == "file":
                    self.files[told["value"]["path"]] = base64.b64decode(told["value"]["content"])
            return (
                200,
                {},
                {"commitOid": self.commit, "commitUrl": f"{self.endpoint}/me/posts/commit/{self.commit}", "success": True},
            )
        if "/resolve/" in path:
            name = path.split("/resolve/", 1)[1].split("/", 1)[1]
            if name not in self.files:
                return 404, {"X-Error-Code": "EntryNotFound"}, {"error": "no such file"}
            content = self.files[name]
            return 200, {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": self.commit}, content
        if path.startswith("/api/models/me/posts/tree"):
            return (
                200,
                {},
                [
                    {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                    for name, content in self.files.items()
                ],
            )
        if path.startswith("/api/models/me/posts"):
            return (
                200,
                {},
                {
                    "id": "me/posts",
                    "sha": self.commit,
                    "siblings": [{"rfilename": name} for name in self.files],
                    "private": False,
                    "tags": [],
                },
            )
        if path == "/api/validate-yaml":
            return 200, {}, {"warnings": [], "errors": []}
        return 404, {}, {"error": f"{method} {path}"}

    def _handler(self):
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _do(self):
                if self.headers.get("Transfer-Encoding") == "chunked":
                    body = b""
                    while size := int(self.rfile.readline(), 16):
                        body += self.rfile.read(size)
                        self.rfile.readline()
                    self.rfile.readline()
                else:
                    body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                hub.asked.append(f"{self.command} {self.path}")
                status, headers, content = hub.answer(self.command, self.path, body)
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header(
                    "Content-Type", "application/octet-stream" if isinstance(content, bytes) else "application/json"
                )
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            do_GET = do_POST = do_HEAD = do_PUT = _do  # noqa: N815 - the names that the server looks for

            def log_message(self, *args):
                pass

        return Handler
