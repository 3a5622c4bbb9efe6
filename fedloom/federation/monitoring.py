"""Health and metrics of a server on request: /health as JSON, /metrics as Prometheus reads it. On this machine only."""

import contextlib
import http.server
import pathlib
import threading
import time
from collections.abc import Iterator

from fedloom.federation.showing import METRICS
from fedloom.federation.status import read_status

STALE = 30.0  # seconds after which a server that says nothing is not well


@contextlib.contextmanager
def monitored(folder: pathlib.Path, port: int) -> Iterator[int]:
    """Answer requests for as long as this lasts; gives the port, which is a free one if 0 was asked for."""

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status = read_status(folder)
            well = status is not None and time.time() - status["at"] < STALE and not status.get("failed")
            if self.path == "/metrics":
                code, text = 200, (folder / METRICS).read_text() if (folder / METRICS).exists() else "fedloom_up 0\n"
            elif self.path == "/health":
                code, text = (200, '{"status": "well"}\n') if well else (503, '{"status": "not well"}\n')
            else:
                code, text = 404, "There are /metrics and /health.\n"
            content = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain; version=0.0.4" if self.path == "/metrics" else "text/plain")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: somebody asks every few seconds."""

    try:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Answers)
    except (OSError, OverflowError) as error:
        raise ValueError(f"--metrics: port {port} cannot be used: {error}.") from error
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
