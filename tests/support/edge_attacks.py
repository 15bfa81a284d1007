"""Attacks on the edge of a server, without a key, in a process of their own: `edge_attacks.py NAME PORT SECONDS`.

Those of `TLS_ATTACKS` are on a server that speaks TLS.
"""

import asyncio
import contextlib
import itertools
import socket
import ssl
import struct
import sys
import time

INFER = b"POST /v2/models/model/infer HTTP/1.1\r\nhost: 127.0.0.1\r\n"
GET = b"GET %b HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"


OPENED = []  # a time for each connection: an attack that does not happen must not pass for one that was resisted


@contextlib.asynccontextmanager
async def _connected(port, **options):
    reader, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port, **options), 5)
    OPENED.append(time.monotonic())
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def _again(end, attack, *arguments, **options):
    """Attack once at least, and with a new connection each time that the former was cut off."""
    while True:
        with contextlib.suppress(OSError, TimeoutError):
            await attack(*arguments, end=end, **options)
        await asyncio.sleep(0)
        if time.monotonic() >= end:
            return


async def _send_on(port, head, part, *, end, pause=0.0, limit=200 * 2**20):
    """Send a part again and again."""
    async with _connected(port) as (_, writer):
        writer.write(head)
        sent = 0
        while time.monotonic() < end and sent < limit and not writer.transport.is_closing():
            writer.write(part)
            sent += len(part)
            await asyncio.wait_for(writer.drain(), 2)
            await asyncio.sleep(min(pause, max(0.0, end - time.monotonic())))
    await asyncio.sleep(0.05)


async def _never_read(port, request, *, end):
    async with _connected(port, limit=1024) as (_, writer):
        writer.transport.pause_reading()
        while time.monotonic() < end and not writer.transport.is_closing():
            if writer.transport.get_write_buffer_size() < 2**20:
                writer.write(request * 64)
            await asyncio.sleep(0.01)


async def _read_all(port, request, *, end):
    async with _connected(port) as (reader, writer):
        while time.monotonic() < end:
            writer.write(request)
            if not await asyncio.wait_for(reader.read(2**18), max(0.1, end - time.monotonic())):
                break


async def _reset(port, sent, *, end):
    """Send, and reset the connection at once."""
    async with _connected(port) as (_, writer):
        writer.write(sent)
        await asyncio.wait_for(writer.drain(), 2)
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def _half_close(port, sent, *, end):
    """Send, say that nothing more comes, and hold the connection."""
    async with _connected(port) as (reader, writer):
        writer.write(sent)
        writer.write_eof()
        await asyncio.wait_for(reader.read(), 2)


async def _drip_read(port, request, *, end):
    """Ask for much, and read a few bytes at a time."""
    loop = asyncio.get_running_loop()
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        raw.setblocking(False)
        await asyncio.wait_for(loop.sock_connect(raw, ("127.0.0.1", port)), 5)
        OPENED.append(time.monotonic())
        await asyncio.wait_for(loop.sock_sendall(raw, request * 16), 5)
        while time.monotonic() < end and await asyncio.wait_for(loop.sock_recv(raw, 64), 20):
            await asyncio.sleep(0.01)


_NUMBERS = itertools.count()


async def _wrong_keys(port, head, *, end):
    """Ask with another wrong key each time: each is looked for in the ledger."""
    async with _connected(port) as (reader, writer):
        while time.monotonic() < end:
            key = b"qk_%08x_%b" % (next(_NUMBERS), b"x" * 32)
            writer.write(head + b"authorization: Bearer " + key + b"\r\ncontent-length: 0\r\n\r\n")
            if not await asyncio.wait_for(reader.read(2**16), 20):
                break


async def _shake_hands(port, *, end):
    """Shake hands by TLS and go away."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with _connected(port, ssl=context):
        pass


MOST = [10**6]  # connections of an attack at a time: a test in the process of the server has fewer


async def _each(count, attack, *arguments, **options):
    *arguments, end = arguments
    await asyncio.gather(*(_again(end, attack, *arguments, **options) for _ in range(min(count, *MOST))))


ATTACKS = {
    "trailers": lambda p, e: _each(4, _send_on, p, INFER + CHUNKED + b"2\r\n{}\r\n0\r\n", b"x-a: b\r\n" * 4096, e),
    "one trailer": lambda p, e: _each(4, _send_on, p, INFER + CHUNKED + b"2\r\n{}\r\n0\r\nx: ", b"a" * 2**15, e),
    "chunk extensions": lambda p, e: _each(4, _send_on, p, INFER + CHUNKED + b"5;", b"a" * 2**15, e),
    "tiny chunks": lambda p, e: _each(4, _send_on, p, INFER + CHUNKED, b"1\r\na\r\n" * 4096, e),
    "slow bodies": lambda p, e: _each(
        1100,
        _send_on,
        p,
        b"POST /v2/repository/index HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 4000\r\n\r\n",
        b"{",
        e,
        pause=1,
    ),
    "slow headers": lambda p, e: _each(1100, _send_on, p, b"GET / HTTP/1.1\r\n", b"x: y\r\n", e, pause=1),
    "silent": lambda p, e: _each(1300, _send_on, p, b"", b"", e, pause=1),
    "never reads": lambda p, e: _each(8, _never_read, p, GET % b"/openapi.json", e),
    "never reads docs": lambda p, e: _each(8, _never_read, p, GET % b"/docs", e),
    "pages": lambda p, e: _each(32, _read_all, p, GET % b"/docs", e),
    "wrong keys": lambda p, e: _each(
        32, _read_all, p, INFER + b"authorization: Bearer qk_00000000_x\r\ncontent-length: 0\r\n\r\n", e
    ),
    "headers without end": lambda p, e: _each(4, _send_on, p, b"GET / HTTP/1.1\r\n", b"x-a: b\r\n" * 4096, e),
    "no HTTP": lambda p, e: _each(32, _read_all, p, b"\x16\x03\x01\x02\x00\x01" * 10, e),
    "pipelines": lambda p, e: _each(16, _read_all, p, (GET % b"/v2/health/live") * 200, e),
    "bodies after a refusal": lambda p, e: _each(
        4, _send_on, p, INFER + b"content-length: 900000000\r\n\r\n", b"x" * 2**16, e
    ),
    "bodies that wait for 100": lambda p, e: _each(
        200, _read_all, p, INFER + b"expect: 100-continue\r\ncontent-length: 4000000\r\n\r\n", e
    ),
    "resets": lambda p, e: _each(32, _reset, p, INFER, e),
    "half-closed": lambda p, e: _each(64, _half_close, p, INFER + b"content-length: 10\r\n\r\n{", e),
    "drips of answers": lambda p, e: _each(64, _drip_read, p, GET % b"/openapi.json", e),
    "other wrong keys": lambda p, e: _each(200, _wrong_keys, p, INFER, e),
    "wrong keys of an index": lambda p, e: _each(
        64, _wrong_keys, p, b"POST /v2/repository/index HTTP/1.1\r\nhost: 127.0.0.1\r\n", e
    ),
    "thousands of headers": lambda p, e: _each(
        16, _read_all, p, INFER + b"a:b\r\n" * 5000 + b"content-length: 0\r\n\r\n", e
    ),
    "long paths": lambda p, e: _each(16, _read_all, p, GET % (b"/v2/models/" + b"%2F/" * 7000), e),
    "long passwords": lambda p, e: _each(
        16, _read_all, p, GET[:-2] % b"/" + b"authorization: Basic " + b"QUFB" * 7000 + b"\r\n\r\n", e
    ),
    "readiness": lambda p, e: _each(32, _read_all, p, GET % b"/v2/health/ready", e),
    "upgrades": lambda p, e: _each(
        32, _read_all, p, GET[:-2] % b"/" + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n", e
    ),
    "other methods": lambda p, e: _each(32, _read_all, p, b"OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n", e),
}
TLS_ATTACKS = {
    "silent handshakes": lambda p, e: _each(1300, _send_on, p, b"", b"", e, pause=1),
    "halves of handshakes": lambda p, e: _each(64, _send_on, p, b"\x16\x03\x01\x10\x00\x01", b"a", e, pause=0.2),
    "garbage for a handshake": lambda p, e: _each(32, _reset, p, b"GET / HTTP/1.1\r\n\r\n" * 100, e),
    "handshakes": lambda p, e: _each(2, _shake_hands, p, e),
}


if __name__ == "__main__":
    asyncio.run((ATTACKS | TLS_ATTACKS)[sys.argv[1]](int(sys.argv[2]), time.monotonic() + float(sys.argv[3])))
    sys.stdout.write(str(len(OPENED)))
