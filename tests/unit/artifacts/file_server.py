"""A web server on loopback whose files and faults a test sets."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CHUNKED = {"Transfer-Encoding": "chunked"}


@dataclass
class ServedFile:
    content: bytes
    last_modified: str = ""
    #: One for each of the next requests: a status, "hang", "no length", "chunked", ("chunks",
    #: bytes) without their end, ("cut", bytes), ("length", announced), ("to", address) ...; a
    #: fault that is None answers well.
    faults: list[object] = field(default_factory=list)


class FileServer:
    def __init__(self) -> None:
        self.files: dict[str, ServedFile] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        #: Set when a test has seen enough: whoever hangs goes on.
        self.released = threading.Event()
        self.hanging = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def put(self, path: str, content: bytes, **options) -> ServedFile:
        self.files[path] = ServedFile(content, **options)
        return self.files[path]


@contextmanager
def file_server() -> Iterator[FileServer]:
    server = FileServer()
    thread = threading.Thread(
        target=server.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.server.shutdown()
        server.server.server_close()
        thread.join(timeout=10)


def _chunks(content: bytes) -> bytes:
    parts = [content[start : start + 50_000] for start in range(0, len(content), 50_000)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)


def _handler(owner: FileServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            headers = {name.lower(): value for name, value in self.headers.items()}
            # A proxy is asked for whole addresses.
            owner.asked.append((self.path, headers))
            if path.startswith("http://"):
                path = "/" + path.split("/", 3)[3]
            file = owner.files.get(path)
            if file is None:
                self.send_error(404)
                return
            fault = file.faults.pop(0) if file.faults else None
            match fault:
                case int(status):
                    self.send_error(status)
                case "hang":
                    owner.hanging.set()
                    owner.released.wait(60)
                case ("to", str(address)):
                    self.send_response(302)
                    self.send_header("Location", address)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                case "no length":
                    self.answer(file, 200, file.content)
                case "chunked":
                    self.answer(file, 200, _chunks(file.content) + b"0\r\n\r\n", CHUNKED)
                case ("chunks", int(size)):
                    self.answer(file, 200, _chunks(file.content[:size]), CHUNKED)
                case ("length", int(announced)):
                    self.answer(file, 200, file.content, {"Content-Length": str(announced)})
                case ("cut", int(size)):
                    self.send_file(file, size)
                case ("hang after", int(size)):
                    self.send_file(file, size)
                    owner.hanging.set()
                    owner.released.wait(60)
                case _:
                    self.send_file(file, None)

        def send_file(self, file: ServedFile, most: int | None) -> None:
            length = str(len(file.content))
            self.answer(file, 200, file.content[:most], {"Content-Length": length})

        def answer(
            self, file: ServedFile, status: int, body: bytes, headers: Mapping[str, str] = {}
        ) -> None:
            self.send_response(status)
            for name, value in {"Last-Modified": file.last_modified, **headers}.items():
                if value:
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()

    return Handler
