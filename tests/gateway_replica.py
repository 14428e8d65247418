#!/usr/bin/env python3
"""A replica for tests under load, on one event loop. The last parts of the path determine what it does:

  /echo              answers with its name, its version, the body of the request, and how many requests it has had at once at most
  /after/MS          the same after that many milliseconds
  /stream/N/MS       N server-sent events, one every MS milliseconds, each with the body of the request
  /large/BYTES       that many bytes

With a folder for its journal it notes the body of each request there, before it answers.

usage: tests/gateway_replica.py [ADDRESS:]PORT VERSION [JOURNAL]"""
import asyncio
import json
import os
import sys

NAME = os.environ.get("BERTH_REPLICA", "replica")
VERSION = sys.argv[2]
BLOCK = b"x" * 65536
JOURNAL = os.open(f"{sys.argv[3]}/{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if len(sys.argv) > 3 else None


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


async def answer(path, body, writer):
    words = path.strip("/").split("/")
    if "stream" in words:
        count, pause_ms = map(int, words[words.index("stream") + 1:])
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for number in range(count):
            writer.write(chunk(b"data: %d %s\n\n" % (number, body)))
            await writer.drain()
            await asyncio.sleep(pause_ms / 1000)
        return writer.write(b"0\r\n\r\n")
    if "large" in words:
        left = int(words[-1])
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % left)
        while left:
            writer.write(BLOCK[:left])
            left -= min(left, len(BLOCK))
            await writer.drain()
        return None
    if "after" in words:
        await asyncio.sleep(int(words[-1]) / 1000)
    text = json.dumps({"replica": NAME, "version": VERSION, "body": body.decode(), "most_at_once": running.most}).encode()
    return writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(text), text))


async def read_body(reader, headers):
    if headers.get("transfer-encoding") != "chunked":
        return await reader.readexactly(int(headers.get("content-length", 0)))
    body = b""
    while size := int(await reader.readline(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
    return body


class Running:
    count = most = 0

    def __enter__(self):
        self.count += 1
        self.most = max(self.most, self.count)

    def __exit__(self, *_):
        self.count -= 1


running = Running()


async def serve(reader, writer):
    try:
        while True:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
            body = await read_body(reader, headers)
            if JOURNAL:
                os.write(JOURNAL, body + b"\n")
            with running:
                await answer(lines[0].split(" ")[1].split("?")[0], body, writer)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main():
    host, _, port = sys.argv[1].rpartition(":")
    server = await asyncio.start_server(serve, host or "127.0.0.1", int(port), backlog=4096)
    await server.serve_forever()


asyncio.run(main())
