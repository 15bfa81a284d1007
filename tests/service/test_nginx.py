"""The configuration of nginx that is shipped, in front of a server: what it absorbs, and what it keeps on no disk."""

import contextlib
import http.client
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time

import pytest

pytest.importorskip("cryptography", reason="it makes the certificate")

from quorate.service.sites import Keys
from support.documents import ROOT

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")

LARGE = 4 * 2**20


class Upstream:
    """A server that keeps the requests it got, whole or not, and answers each with many bytes."""

    def __init__(self, answer=b"{}"):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port, self.requests, self.answer = self.socket.getsockname()[1], [], answer
        self.begun, self.handed_over = 0, threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)  # which wakes the thread that accepts
        self.socket.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.socket.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as file:
            while line := file.readline():
                self.begun += 1
                headers = http.client.parse_headers(file)
                body = file.read(int(headers.get("content-length", 0)))
                self.requests.append((line, headers, body))
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(self.answer) + self.answer)
                self.handed_over.set()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("proxy") / "keys"
    Keys.make(folder, "proxy")
    return folder


@pytest.fixture
def proxied(tmp_path, certificate):
    """Return a function that starts nginx before an upstream; it returns that, the port and the folder of nginx."""
    with contextlib.ExitStack() as stack:

        def start(answer=b"{}", **seconds):
            upstream = stack.enter_context(contextlib.closing(Upstream(answer)))
            return upstream, *stack.enter_context(_nginx(tmp_path, certificate, upstream, seconds))

        yield start


@contextlib.contextmanager
def _nginx(folder, certificate, upstream, seconds):
    text = (ROOT / "deploy" / "nginx" / "quorate.conf").read_text()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    replaced = {
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "127.0.0.1:8900": f"127.0.0.1:{upstream.port}",
        "/etc/ssl/triage.pem": certificate / "certificate.pem",
        "/etc/ssl/triage.key": certificate / "key.pem",
    }
    for old, new in replaced.items():
        assert text.count(old) == 1
        text = text.replace(old, str(new))
    for name, value in seconds.items():
        text, count = re.subn(rf"({name}\s+)\w+;", rf"\g<1>{value};", text)
        assert count == 1
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "conf").write_text(text)
    main = f"daemon off;\npid {folder}/pid;\nerror_log {folder}/log;\nevents {{}}\n"
    user = "user root;\n" if folder.owner() == "root" else ""
    (folder / "main").write_text(f"{main}{user}http {{\n{temporary}include {folder}/conf;\n}}\n")
    process = subprocess.Popen([NGINX, "-c", folder / "main", "-p", folder], stderr=subprocess.PIPE)
    try:
        _wait_for(lambda: _connects(port) or process.poll() is not None)
        assert process.poll() is None, process.stderr.read()
        yield port, folder
    finally:
        process.terminate()
        process.wait(30)
        process.stderr.close()


def _connects(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def _wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def _context(certificate):
    return ssl.create_default_context(cafile=certificate / "certificate.pem")


def _raw(port, certificate, sent, **options):
    plain = socket.create_connection(("127.0.0.1", port), 30)
    for name, value in options.items():
        plain.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
    connection = _context(certificate).wrap_socket(plain, server_hostname="127.0.0.1")
    connection.sendall(sent)
    return connection


def _request(port, certificate, method, path, body=None, headers=None):
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=_context(certificate))
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_a_request_arrives_unchanged_and_leaves_nothing_on_the_disk(proxied, certificate):
    upstream, port, folder = proxied()
    body = b"x" * (LARGE - 10)
    headers = {"authorization": "Bearer qk_a_b", "idempotency-key": "a b", "host": f"triage:{port}"}
    assert _request(port, certificate, "POST", "/v2/models/a%2Fb/infer", body, headers) == (200, b"{}")
    line, got, received = upstream.requests[0]
    assert line == b"POST /v2/models/a%2Fb/infer HTTP/1.1\r\n"
    assert {name: got[name] for name in headers} == headers
    assert received == body
    written = [path for kind in ("client_body", "proxy") for path in (folder / kind).rglob("*")]
    assert not [path for path in written if path.is_file()]
    assert "buffered to a temporary file" not in (folder / "log").read_text()


def test_a_body_that_is_too_large_is_refused_before_the_server(proxied, certificate):
    upstream, port, _ = proxied()
    with _raw(port, certificate, b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % (LARGE + 1)) as refused:
        assert b" 413 " in refused.recv(4096)
    assert upstream.begun == 0


def test_slow_bodies_and_trailers_do_not_reach_the_server(proxied, certificate):
    upstream, port, _ = proxied(client_body_timeout="1s")
    head = b"POST / HTTP/1.1\r\nhost: a\r\n"
    slow = [_raw(port, certificate, head + b"content-length: 100\r\n\r\n{") for _ in range(20)]
    chunked = b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nauthorization: Bearer qk_a_b\r\n\r\n"
    with _raw(port, certificate, head + chunked) as trailed:
        assert b" 200 " in trailed.recv(4096)
    assert upstream.begun == 1
    assert upstream.requests[0][1]["authorization"] is None
    for connection in slow:
        with connection:
            connection.settimeout(20)
            assert connection.recv(4096) == b""
    assert upstream.begun == 1


def test_a_client_that_does_not_read_holds_the_proxy_and_not_the_server(proxied, certificate):
    upstream, port, folder = proxied(b"x" * LARGE)
    with _raw(port, certificate, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", SO_RCVBUF=4096):
        assert upstream.handed_over.wait(20)  # all of the answer, though nobody has read any of it
    assert not [path for path in (folder / "proxy").rglob("*") if path.is_file()]
