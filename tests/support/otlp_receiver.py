"""A receiver of traces on 127.0.0.1, which remembers what it got."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Receiver:
    """A receiver of OTLP/HTTP. ``status``: what it answers. ``wait``: it answers only when this is set."""

    url: str = ""
    status: int = 200
    names: list[str] = field(default_factory=list)
    raw: bytes = b""
    came: threading.Event = field(default_factory=threading.Event)
    wait: threading.Event = field(default_factory=threading.Event)


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Gives a receiver on 127.0.0.1, and stops it."""
    state = Receiver()
    state.wait.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            body = gzip.decompress(data) if self.headers.get("content-encoding") == "gzip" else data
            state.came.set()
            state.wait.wait(20)
            state.raw += body
            request = ExportTraceServiceRequest.FromString(body)
            for resource in request.resource_spans:
                state.names += [span.name for scope in resource.scope_spans for span in scope.spans]
            self.send_response(state.status)
            self.send_header("location", "http://127.0.0.1:9/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}/v1/traces"
    yield state
    state.wait.set()
    server.shutdown()
    server.server_close()
    thread.join()
