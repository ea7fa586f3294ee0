"""A hub on loopback: models from folders, byte ranges, a pace, and whatever goes wrong on the way."""

import hashlib
import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

COMMIT = "a" * 40


@dataclass
class LoopbackHub:
    """``with LoopbackHub({"owner/name": folder}) as hub:`` serves ``hub.url`` from threads of its own.

    Attributes:
        bytes_per_s: of weights; 0: as fast as can be.
        wrong: names of files of which other bytes are sent than their digest says.
        cut_after: bytes of weights after which each answer is cut, None: never.
        lie: changes what the hub says of a model.
        tag: what the hub calls each file instead of by its digest.
        endless: the name of a file that never ends.
        xet: the address at which it offers each file by Xet; empty: it does not.
        refusal: the status and headers with which it answers everything; None: it does not.
        also: names of files that it lists and does not have.
        says: what it answers about a model in place of its description; empty: that.
        requests: the path of each request.
        asked: method, path and Range header of each request for weights.
    """

    models: dict[str, Path]
    bytes_per_s: float = 0
    wrong: frozenset[str] = frozenset()
    cut_after: int | None = None
    lie: Callable[[dict[str, Any]], None] = lambda info: None
    tag: str = ""
    endless: str = ""
    xet: str = ""
    also: tuple[str, ...] = ()
    says: bytes = b""
    requests: list[str] = field(default_factory=list)
    refusal: tuple[int, dict[str, str]] | None = None
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    url: str = ""

    def __enter__(self) -> Self:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                _Answer(hub, self).give()

            do_HEAD = do_GET

            def log_message(self, *_: Any) -> None:
                """Nothing on the console."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def ranges(self) -> list[str]:
        """The ranges that were asked of weights, in order; empty for all of a file."""
        return [asked for method, _, asked in self.asked if method == "GET"]


class _Answer:
    def __init__(self, hub: LoopbackHub, to: BaseHTTPRequestHandler) -> None:
        self._hub, self._to = hub, to
        self._path = unquote(urlsplit(to.path).path)

    def give(self) -> None:
        self._hub.requests.append(self._path)
        if self._hub.refusal is not None:
            status, headers = self._hub.refusal
            return self._send(status, b"{}", headers)
        for hub_id, folder in self._hub.models.items():
            if self._path.startswith(f"/api/models/{hub_id}"):
                rest = self._path.removeprefix(f"/api/models/{hub_id}")
                if self._hub.says:
                    return self._send(200, self._hub.says, {"Content-Type": "application/json"})
                files = [self._file(path) for path in sorted(folder.iterdir())]
                files += [
                    {"type": "file", "path": name, "rfilename": name, "size": 1, "oid": "0"} for name in self._hub.also
                ]
                return self._json(files if rest.startswith("/tree") else self._info(hub_id, files))
            if self._path.startswith(f"/{hub_id}/resolve/"):
                return self._bytes(folder / self._path.rsplit("/", 1)[1])
        headers = {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}
        return self._send(404, b"{}", headers)

    def _file(self, path: Path) -> dict[str, Any]:
        data = path.read_bytes()
        told: dict[str, Any] = {"type": "file", "path": path.name, "rfilename": path.name, "size": len(data)}
        told |= {"oid": _etag(path), "blobId": _etag(path)}
        if path.suffix in (".safetensors", ".gguf"):
            told["lfs"] = {"oid": _etag(path), "sha256": _etag(path), "size": len(data), "pointerSize": 130}
        return told

    def _info(self, hub_id: str, files: list[dict[str, Any]]) -> dict[str, Any]:
        said = {"_id": "0", "id": hub_id, "modelId": hub_id, "sha": COMMIT, "private": False, "siblings": files}
        self._hub.lie(said)
        return said

    def _json(self, document: Any) -> None:
        self._send(200, json.dumps(document).encode(), {"Content-Type": "application/json"})

    def _bytes(self, path: Path) -> None:
        asked = self._to.headers.get("Range", "")
        if weights := path.suffix in (".safetensors", ".gguf"):
            self._hub.asked.append((self._to.command, path.name, asked))
        data = path.read_bytes()
        if path.name == self._hub.endless and self._to.command == "GET":
            self._without_end()
            return
        headers = {"ETag": f'"{self._hub.tag or _etag(path)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if weights:
            headers |= {"X-Linked-Etag": f'"{_etag(path)}"', "X-Linked-Size": str(len(data))}
        if self._hub.xet:
            headers |= {"X-Xet-Hash": "d" * 64, "Link": f'<{self._hub.xet}/token>; rel="xet-auth"'}
        if path.name in self._hub.wrong:
            data = bytes(len(data))
        first = int(asked.removeprefix("bytes=").partition("-")[0]) if asked else 0
        if asked:
            headers["Content-Range"] = f"bytes {first}-{len(data) - 1}/{len(data)}"
        self._send(206 if asked else 200, data[first:], headers, slowly=weights)

    def _without_end(self) -> None:
        self._to.send_response(200)
        self._to.end_headers()
        self._to.close_connection = True
        with suppress(ConnectionError):
            for _ in range(500):
                self._to.wfile.write(bytes(100_000))

    def _send(self, status: int, body: bytes, headers: dict[str, str], *, slowly: bool = False) -> None:
        to = self._to
        to.send_response(status)
        for name, value in headers.items():
            to.send_header(name, value)
        to.send_header("Content-Length", str(len(body)))
        to.end_headers()
        if to.command == "HEAD":
            return
        if slowly and self._hub.cut_after is not None and len(body) > self._hub.cut_after:
            body, to.close_connection = body[: self._hub.cut_after], True
        pace = self._hub.bytes_per_s if slowly else 0
        step = max(1, int(pace / 50)) if pace else len(body) or 1
        try:
            for at in range(0, len(body), step):
                to.wfile.write(body[at : at + step])
                if pace:
                    time.sleep(step / pace)
        except ConnectionError:
            to.close_connection = True  # the client has left


def _etag(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
