"""Load on an HTTP server from one event loop: kept connections, requests at a constant rate whether or not earlier ones were answered, and
the outcome of each of them. Times are counted from the moment at which a request was due, so that a late generator hides nothing."""
import asyncio
import contextlib
import dataclasses
import threading
import time

# An idle connection is not used again after this time: the server may be closing it.
IDLE_S = 5


@dataclasses.dataclass
class Answer:
    status: int
    headers: dict
    body: bytes


class Cut(Exception):
    """The connection ended within an answer."""

    def __init__(self, answer):
        super().__init__(f"cut after {len(answer.body)} bytes of an answer with status {answer.status}")
        self.answer = answer


class Connection:
    """A connection to one server, for one request after another."""

    def __init__(self, reader, writer):
        self.reader, self.writer, self.idle_since = reader, writer, time.monotonic()

    @classmethod
    async def open(cls, port, tls=None, host="127.0.0.1"):
        return cls(*await asyncio.open_connection(host, port, ssl=tls, limit=1 << 20))

    def is_usable(self):
        return not self.reader.at_eof() and not self.writer.is_closing() and time.monotonic() - self.idle_since < IDLE_S

    async def send(self, path, body=b"", headers=None, method=None):
        lines = {"host": "localhost", **({"content-length": len(body)} if body else {}), **(headers or {})}
        head = f"{method or ('POST' if body else 'GET')} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self.writer.write(head.encode() + b"\r\n" + body)
        await self.writer.drain()

    async def receive(self):
        """Raises ConnectionError if there is no answer, and Cut if it is not complete."""
        try:
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        except asyncio.IncompleteReadError as error:
            raise ConnectionResetError(f"closed without an answer, after {len(error.partial)} bytes") from None
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
        answer = Answer(int(lines[0].split(" ")[1]), headers, b"")
        pieces = []
        try:
            if headers.get("transfer-encoding") == "chunked":
                while size := int(await self.reader.readuntil(b"\r\n"), 16):
                    pieces.append((await self.reader.readexactly(size + 2))[:-2])
                await self.reader.readexactly(2)
            else:
                pieces.append(await self.reader.readexactly(int(headers.get("content-length", 0))))
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            answer.body = b"".join(pieces)
            raise Cut(answer) from None
        answer.body = b"".join(pieces)
        if headers.get("connection") == "close":
            self.writer.close()
        self.idle_since = time.monotonic()
        return answer

    def close(self):
        with contextlib.suppress(Exception):
            self.writer.transport.abort()


class Client:
    """Keeps connections, and reuses the one that was used last."""

    def __init__(self, port, tls=None):
        self.port, self.tls, self.idle = port, tls, []

    async def ask(self, path, body=b"", headers=None, method=None):
        connection = None
        while self.idle and connection is None:
            connection = self.idle.pop()
            if not connection.is_usable():
                connection.close()
                connection = None
        connection = connection or await Connection.open(self.port, self.tls)
        try:
            await connection.send(path, body, headers, method)
            answer = await connection.receive()
        except BaseException:
            connection.close()
            raise
        if connection.writer.is_closing():
            connection.close()
        else:
            self.idle.append(connection)
        return answer

    def close(self):
        for connection in self.idle:
            connection.close()
        self.idle = []


@dataclasses.dataclass
class Outcome:
    number: int
    due: float  # of the monotonic clock
    took: float
    answer: Answer | None  # as far as it came
    problem: str  # empty: the answer is complete


async def outcome_of(number, due, asking, seconds_max):
    """`asking` returns an Answer."""
    answer, problem = None, ""
    try:
        answer = await asyncio.wait_for(asking, seconds_max)
    except asyncio.TimeoutError:
        problem = f"no complete answer within {seconds_max} s"
    except Cut as cut:
        answer, problem = cut.answer, str(cut)
    except OSError as error:
        problem = f"{type(error).__name__}: {error}"
    return Outcome(number, due, time.monotonic() - due, answer, problem)


async def at_rate(rate, ends, ask, seconds_max=60):
    """Calls `ask(number)` at a constant rate until ends(), whether or not earlier calls have finished."""
    begin, tasks, number = time.monotonic(), [], 0
    while not ends():
        due = begin + number / rate
        if (wait := due - time.monotonic()) > 0:
            await asyncio.sleep(wait)
        tasks.append(asyncio.ensure_future(outcome_of(number, due, ask(number), seconds_max)))
        number += 1
        if number % 32 == 0:
            await asyncio.sleep(0)  # also lets answers in if the generator is late
    return list(await asyncio.gather(*tasks))


def for_seconds(seconds):
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


class Background:
    """A coroutine on a thread of its own, until it ends: for load beside a test that waits for other things."""

    def __init__(self, make):
        self.ends, self.result, self.error = threading.Event(), None, None
        self.thread = threading.Thread(target=self._run, args=(make,))
        self.thread.start()

    def _run(self, make):
        try:
            self.result = asyncio.run(make(self.ends.is_set))
        except BaseException as error:  # noqa: raised again by stop()
            self.error = error

    def stop(self):
        self.ends.set()
        self.thread.join()
        if self.error:
            raise self.error
        return self.result
