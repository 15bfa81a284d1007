"""Attacks on the edge of a server, without a key, in a process of their own: `edge_attacks.py NAME PORT SECONDS`."""

import asyncio
import contextlib
import sys
import time

INFER = b"POST /v2/models/model/infer HTTP/1.1\r\nhost: 127.0.0.1\r\n"
GET = b"GET %b HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"


OPENED = []  # a time for each connection: an attack that does not happen must not pass for one that was resisted


async def _connect(port, **options):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **options)
    OPENED.append(time.monotonic())
    return reader, writer


async def _send_on(port, head, part, end, *, pause=0.0, limit=200 * 2**20):
    """Open a connection, and send a part again and again; connect anew when cut off."""
    while time.monotonic() < end:
        with contextlib.suppress(OSError, TimeoutError):
            _, writer = await _connect(port)
            writer.write(head)
            sent = 0
            while time.monotonic() < end and sent < limit and not writer.transport.is_closing():
                writer.write(part)
                sent += len(part)
                await asyncio.wait_for(writer.drain(), 2)
                await asyncio.sleep(pause)
            writer.transport.abort()
        await asyncio.sleep(0.05)


async def _never_read(port, request, end):
    while time.monotonic() < end:
        with contextlib.suppress(OSError, TimeoutError):
            _, writer = await _connect(port, limit=1024)
            writer.transport.pause_reading()
            while time.monotonic() < end and not writer.transport.is_closing():
                if writer.transport.get_write_buffer_size() < 2**20:
                    writer.write(request * 64)
                await asyncio.sleep(0.01)
            writer.transport.abort()


async def _read_all(port, request, end):
    while time.monotonic() < end:
        with contextlib.suppress(OSError, TimeoutError):
            reader, writer = await _connect(port)
            while time.monotonic() < end:
                writer.write(request)
                if not await asyncio.wait_for(reader.read(2**18), 20):
                    break
            writer.transport.abort()


async def _each(count, attack, *arguments, **options):
    await asyncio.gather(*(attack(*arguments, **options) for _ in range(count)))


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
}


if __name__ == "__main__":
    asyncio.run(ATTACKS[sys.argv[1]](int(sys.argv[2]), time.monotonic() + float(sys.argv[3])))
    sys.stdout.write(str(len(OPENED)))
