"""HTTPS without a proxy: who speaks it is served, and nobody keeps others from a handshake."""

import asyncio
import os
import socket
import ssl
import time
from types import SimpleNamespace

import pytest
import uvloop

pytest.importorskip("cryptography", reason="it makes the certificates")

from fake_session import fake_model

from quorate.core.errors import InvalidInput
from quorate.service._app import make_app
from quorate.service._edge import EdgeProtocol
from quorate.service._run import _Server, fit_connections, make_config
from quorate.service._settings import ENVIRONMENT, Settings
from quorate.service._tls import Certificate, TlsListener
from quorate.service.sites import Keys
from quorate.service.sites import server as site_module

REQUEST = b"GET /v2/health/live HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
WRITERS = []  # of connections that a test has opened
LOOPS = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The files of a certificate and of its key."""
    folder = tmp_path_factory.mktemp("tls") / "server"
    Keys.make(folder, "server")
    return folder / "certificate.pem", folder / "key.pem"


def served(work, monkeypatch, pair, loop="uvloop", **limits):
    """Run `work(port)` against a server that speaks TLS."""
    certificate, key = map(str, pair)
    options = {"models": {"m": "m"}, "keys": False, "pace_ms": 0, "tls": certificate, "tls_key": key}
    settings = Settings(**options | limits)
    monkeypatch.setenv(ENVIRONMENT, settings.to_json())
    EdgeProtocol.waiting.clear()

    async def main():
        listening = socket.create_server(("127.0.0.1", 0), backlog=512)
        config = make_config(make_app([fake_model()], settings), http=EdgeProtocol, lifespan="on")
        server = _Server(config, settings)
        task = asyncio.create_task(server._serve([listening]))
        try:
            while not server.started:
                await asyncio.sleep(0.01)
            return await asyncio.wait_for(work(listening.getsockname()[1]), 60)
        finally:
            while WRITERS:
                WRITERS.pop().close()
            server.should_exit = True
            await task

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(main())


async def connect(port, certificate=None):
    context = None if certificate is None else ssl.create_default_context(cafile=certificate)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    WRITERS.append(writer)
    return reader, writer


async def ask(port, certificate, request=REQUEST, **options):
    context = ssl.create_default_context(cafile=certificate)
    for name, value in options.items():
        setattr(context, name, value)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    writer.write(request)
    try:
        return await reader.read(), writer.get_extra_info("ssl_object").version()
    finally:
        writer.close()


def shake_hands_as_of_old(port, certificate):
    context = ssl.create_default_context(cafile=certificate)
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with socket.create_connection(("127.0.0.1", port), 30) as plain:
        context.wrap_socket(plain, server_hostname="127.0.0.1").close()


@pytest.mark.parametrize("loop", LOOPS)
def test_a_client_that_trusts_the_certificate_is_answered(monkeypatch, pair, loop):
    async def work(port):
        return [await ask(port, pair[0]), await ask(port, pair[0], maximum_version=ssl.TLSVersion.TLSv1_2)]

    (new, version), (old, older) = served(work, monkeypatch, pair, loop)
    assert (version, older) == ("TLSv1.3", "TLSv1.2")
    assert new.startswith(b"HTTP/1.1 200 ")
    assert old.startswith(b"HTTP/1.1 200 ")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_tls_below_1_2_and_plain_http_are_refused(monkeypatch, pair):
    async def work(port):
        with pytest.raises(ssl.SSLError, match=r"(?i)alert protocol version|EOF"):
            await asyncio.to_thread(shake_hands_as_of_old, port, pair[0])
        reader, writer = await connect(port)
        writer.write(REQUEST)
        plain = await reader.read()
        return plain, await ask(port, pair[0])

    plain, (after, _) = served(work, monkeypatch, pair)
    assert b"HTTP/1.1 200" not in plain
    assert after.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("loop", LOOPS)
def test_silent_handshakes_keep_nobody_out(monkeypatch, pair, loop):
    """More connections than may shake hands: the oldest are closed, and each new client is answered."""

    async def work(port):
        silent = [await connect(port) for _ in range(40)]
        answered = [(await ask(port, pair[0]))[0][:12] for _ in range(10)]
        closed = [await asyncio.wait_for(reader.read(), 60) for reader, _ in silent[:30]]
        return answered, closed

    answered, closed = served(work, monkeypatch, pair, loop, connection_limit=20, header_seconds=60)
    assert answered == [b"HTTP/1.1 200"] * 10
    assert closed == [b""] * 30


@pytest.mark.parametrize("loop", LOOPS)
def test_a_slow_handshake_and_a_silent_client_after_it_are_cut_off(monkeypatch, pair, loop):
    async def work(port):
        start = time.monotonic()
        silent, _ = await connect(port)
        shaken, _ = await connect(port, pair[0])
        replies = await silent.read(), await shaken.read()
        await asyncio.sleep(0.05)  # for the listener to forget it
        return *replies, time.monotonic() - start

    listeners = []
    accept = TlsListener._accept
    monkeypatch.setattr(TlsListener, "_accept", lambda self: listeners.append(self) or accept(self))
    silent, shaken, waited = served(work, monkeypatch, pair, loop, header_seconds=0.5)
    assert silent == shaken == b""
    assert waited < 20
    assert not listeners[0]._handshakes


def test_idle_tls_connections_make_room(monkeypatch, pair):
    async def work(port):
        for _ in range(30):
            await connect(port, pair[0])
        return [(await ask(port, pair[0]))[0][:12] for _ in range(5)]

    answered = served(work, monkeypatch, pair, connection_limit=10, header_seconds=60)
    assert answered == [b"HTTP/1.1 200"] * 5


def test_a_renewed_certificate_is_used_and_a_broken_one_is_not(monkeypatch, pair, tmp_path):
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    for source, target in zip(pair, (certificate, key), strict=True):
        target.write_bytes(source.read_bytes())
        target.chmod(0o600)
    Keys.make(tmp_path / "renewed", "renewed")

    async def work(port):
        before = (await ask(port, pair[0]))[0]
        certificate.write_text("half of a file")
        during = (await ask(port, pair[0]))[0]
        for target in (certificate, key):
            target.write_bytes((tmp_path / "renewed" / target.name).read_bytes())
        os.utime(key, ns=(1, time.time_ns()))
        after = (await ask(port, tmp_path / "renewed" / "certificate.pem"))[0]
        with pytest.raises(ssl.SSLCertVerificationError):
            await ask(port, pair[0])
        return before, during, after

    replies = served(work, monkeypatch, (certificate, key))
    assert all(reply.startswith(b"HTTP/1.1 200 ") for reply in replies)


def test_certificates_that_cannot_serve_are_refused_at_the_start(pair, tmp_path):
    certificate, key = pair
    both = tmp_path / "both.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    both.chmod(0o644)
    with pytest.raises(InvalidInput, match="may be read by everybody"):
        Certificate(str(both))
    both.chmod(0o600)
    opened = Certificate(str(both))
    former = opened.context()
    assert former.minimum_version == ssl.TLSVersion.TLSv1_2
    for mode, kept in ((0o644, True), (0o600, False)):  # as after a renewal
        both.chmod(mode)
        os.utime(both, ns=(1, time.time_ns()))
        assert (opened.context() is former) == kept
    for files in ((str(certificate),), (str(tmp_path / "none.pem"),), (str(key), str(key))):
        with pytest.raises(InvalidInput, match="cannot be used as a certificate"):
            Certificate(*files)
    with pytest.raises(InvalidInput, match="tls_key requires tls"):
        Settings(models={"m": "m"}, tls_key=str(key))


def test_an_encrypted_key_is_refused_and_asks_nobody(pair, tmp_path):
    from cryptography.hazmat.primitives import serialization

    loaded = serialization.load_pem_private_key(pair[1].read_bytes(), None)
    form = serialization.BestAvailableEncryption(b"secret")
    encrypted = tmp_path / "key.pem"
    encrypted.write_bytes(loaded.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, form))
    encrypted.chmod(0o600)
    with pytest.raises(InvalidInput, match="cannot be used as a certificate"):
        Certificate(str(pair[0]), str(encrypted))


def test_handshakes_have_descriptors_beside_the_connections(monkeypatch, pair):
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda kind: (4096, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, pair: None)
    plain = Settings(models={"m": "m"}, connection_limit=3800)
    assert fit_connections(plain).connection_limit == 3800
    secure = fit_connections(Settings(models={"m": "m"}, connection_limit=3800, tls=str(pair[0])))
    assert secure.connection_limit * 5 // 4 < 4096


def test_a_stop_ends_handshakes_under_way(monkeypatch, pair):
    async def work(port):
        sockets.append(socket.create_connection(("127.0.0.1", port)))
        await asyncio.sleep(0.1)

    sockets, start = [], time.monotonic()
    served(work, monkeypatch, pair, header_seconds=60)
    with sockets[0] as silent:
        assert silent.recv(1) == b""
    assert time.monotonic() - start < 20


def test_a_site_of_a_federation_has_the_same_bounds(monkeypatch, tmp_path):
    """Its handshakes and connections are bounded too, and only its coordinator gets through a handshake."""
    north, centre = (Keys.make(tmp_path / name, name) for name in ("north", "centre"))
    started = {}

    def run(config, listening, announce, limits, tls):
        started.update(config=config, limits=limits, tls=tls)
        return 0

    monkeypatch.setattr(site_module, "run_server", run)
    site = SimpleNamespace(name="north", mode="counts")
    assert site_module.serve_site(site, north, centre.card, port=0) == 0
    monkeypatch.delenv(ENVIRONMENT, raising=False)  # its limits are its own, and not of a server's settings

    async def main():
        listening = socket.create_server(("127.0.0.1", 0), backlog=512)
        config, limits, tls = started["config"], started["limits"], started["tls"]
        assert limits.connection_limit == 64
        config.lifespan = "off"
        server = _Server(config, limits, tls=tls)
        task = asyncio.create_task(server._serve([listening]))
        while not server.started:
            await asyncio.sleep(0.01)
        port = listening.getsockname()[1]
        silent = [await connect(port) for _ in range(100)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=centre.context(north.card, server=False))
        WRITERS.append(writer)
        writer.write(b"GET /nothing HTTP/1.1\r\nhost: north\r\nconnection: close\r\n\r\n")
        told = await asyncio.wait_for(reader.read(), 60)
        closed = [await asyncio.wait_for(reader.read(), 60) for reader, _ in silent[:80]]
        while WRITERS:
            WRITERS.pop().close()
        server.should_exit = True
        await task
        return told, closed

    told, closed = asyncio.run(main())
    assert told.startswith(b"HTTP/1.1 404 ")
    assert closed == [b""] * 80
