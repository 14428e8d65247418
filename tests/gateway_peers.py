#!/usr/bin/env python3
"""Third-party programs at both ends of a gateway: curl, wrk, hey and Python's own client send requests, nginx and a WebSocket answer them, and
Prometheus reads the metrics. Each is used where it is installed."""
import base64
import collections
import contextlib
import gzip
import hashlib
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import unittest
import urllib.parse

from fleet_case import free_port
from gateway_case import Gateway, program

KIB, MIB = 1 << 10, 1 << 20

# Echoes short frames over a WebSocket, one at a time; answers other requests with a word.
ECHO = """
import base64, hashlib, socket, sys, threading
def read(stream, count):
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data
def serve(connection):
    stream = connection.makefile("rwb")
    head = b""
    while not head.endswith(b"\\r\\n\\r\\n"):
        head += read(stream, 1)
    headers = {line.split(b":")[0].lower(): line.split(b":", 1)[1].strip() for line in head.split(b"\\r\\n")[1:] if line}
    if headers.get(b"upgrade", b"").lower() != b"websocket":
        stream.write(b"HTTP/1.1 200 OK\\r\\ncontent-length: 5\\r\\n\\r\\nplain")
        return stream.flush()
    key = base64.b64encode(hashlib.sha1(headers[b"sec-websocket-key"] + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    stream.write(b"HTTP/1.1 101 Switching Protocols\\r\\nupgrade: websocket\\r\\nconnection: Upgrade\\r\\nsec-websocket-accept: " + key + b"\\r\\n\\r\\n")
    while True:
        stream.flush()
        kind, length = read(stream, 2)
        mask, data = read(stream, 4), read(stream, length & 127)
        plain = bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))
        stream.write(bytes([kind, len(plain)]) + plain)
        if kind & 15 == 8:
            return stream.flush()
def run(connection):
    try:
        serve(connection)
    except (EOFError, OSError):
        pass
    connection.close()
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    threading.Thread(target=run, args=(listener.accept()[0],), daemon=True).start()
"""

NGINX = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  types {{ text/plain txt; }}
  gzip on;
  gzip_types text/plain;
  gzip_min_length 1;
  server {{
    listen 127.0.0.1:PORT;
    location /static/ {{
      alias {folder}/files/;
    }}
    location /static/socket {{
      proxy_pass http://127.0.0.1:{echo};
      proxy_http_version 1.1;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection "upgrade";
    }}
  }}
}}
"""


def needs(*names):
    missing = [name for name in names if not program(name)]
    return unittest.skipIf(missing, f"needs {' and '.join(missing)}")


class Peers(Gateway):
    def run_program(self, *command):
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, env=self.environment())

    def url(self, path):
        return f"http://127.0.0.1:{self.gateway}{path}"


class Clients(Peers):
    def setUp(self):
        super().setUp()
        self.add_nodes("a", "b")
        self.apply(self.loaded(replicas=2, spread="one_per_node", model="m"))
        self.until_answered("/app/echo", 2)

    def curl(self, *words):
        answer = self.run_program("curl", "-sS", "--max-time", "60", *words)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return answer.stdout

    @needs("curl")
    def test_curl(self):
        body = json.dumps({"model": "m", "text": "ä\n\"" * 100})
        for more in ([], ["-H", "Transfer-Encoding: chunked"], ["-H", "Expect: 100-continue"], ["--http2"], ["--compressed"]):
            self.assertEqual(json.loads(self.curl("-d", body, *more, self.url("/v1/chat/completions")))["body"], body, more)
        large = self.folder / "large"
        large.write_text("x" * (3 * MIB))
        self.assertEqual(len(json.loads(self.curl("-T", str(large), self.url("/app/echo")))["body"]), 3 * MIB)
        self.assertEqual(len(self.curl(self.url(f"/app/large/{5 * MIB}"))), 5 * MIB)
        # Both requests use one connection.
        self.assertEqual(self.curl("-o", "/dev/null", "-o", "/dev/null", "-w", "%{http_code} %{num_connects} ", self.url("/app/echo"), self.url("/app/echo")), "200 1 200 0 ")
        self.assertEqual(self.curl("-N", "-d", "event", self.url("/app/stream/5/20")), "".join(f"data: {number} event\n\n" for number in range(5)))
        # A refusal has a message, also if the body is longer than the gateway reads.
        long_body = self.folder / "long.json"
        long_body.write_text(json.dumps({"text": "x" * (400 * KIB), "model": "m"}))
        self.assertIn("x-berth-deployment", self.curl("-d", f"@{long_body}", self.url("/v1/chat/completions")))
        self.assertIn("200", self.curl("-o", "/dev/null", "-w", "%{http_code}", "-H", "x-berth-deployment: app", "-d", f"@{long_body}", self.url("/v1/chat/completions")))

    @needs("curl", "openssl")
    def test_curl_over_tls(self):
        self.make_certificate()
        key = self.command("token", "add", "call", "--deployment", "app").stdout.strip()
        _, port = self.start_edge()

        def ask():
            return self.run_program("curl", "-sS", "--max-time", "10", "--cacert", str(self.folder / "certificate.pem"), "-H", f"x-api-key: {key}", "-d", '{"model": "m"}',
                                    f"https://localhost:{port}/v1/x").stdout
        self.until(lambda: '"replica": "app/' in ask(), ask)

    def test_python(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway, timeout=60)
        for number in range(20):
            connection.request("POST", "/app/echo", f"body {number}")
            answer = connection.getresponse()
            self.assertEqual((answer.status, json.loads(answer.read())["body"]), (200, f"body {number}"))
        connection.request("POST", "/app/echo", iter([b"a" * 70_000, b"b"]), encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
        self.assertEqual(len(json.loads(connection.getresponse().read())["body"]), 70_001)
        connection.request("GET", f"/app/large/{MIB}")
        self.assertEqual(len(connection.getresponse().read()), MIB)
        connection.close()

    @needs("wrk")
    def test_wrk(self):
        out = self.run_program("wrk", "-t2", "-c20", "-d2s", self.url("/app/echo")).stdout
        self.assertNotRegex(out, "Socket errors|Non-2xx")
        self.assertGreater(int(re.search(r"(\d+) requests in", out)[1]), 0)

    @needs("hey")
    def test_hey(self):
        for more in ([], ["-disable-keepalive"], ["-m", "POST", "-d", '{"model": "m"}']):
            # Once, some of so many new connections were closed without an answer.
            out = self.run_program("hey", "-n", "4000", "-c", "10", *more, self.url("/app/echo")).stdout
            self.assertRegex(out, r"\[200\]\s+4000 responses", out)


class Replicas(Peers):
    def start_echo(self):
        file, port = self.folder / "echo.py", free_port()
        file.write_text(ECHO)
        self.spawn("echo.log", sys.executable, "-SE", str(file), str(port))
        return port

    def start_nginx(self, echo):
        self.add_nodes("a")
        files, conf = self.folder / "files", self.folder / "nginx.conf"
        files.mkdir()
        (files / "hello.txt").write_text("hello " * 1000)
        (files / "large.bin").write_bytes(os.urandom(3 * MIB))
        conf.write_text(NGINX.format(folder=self.folder, echo=echo))
        start = f"sed 's/PORT/{{port}}/' {conf} >{conf}.own && exec {program('nginx')} -c {conf}.own -e {self.folder}/nginx_error.log"
        self.apply({**self.loaded("static", replicas=1), "command": ["/bin/sh", "-c", start]})
        self.until(lambda: self.is_answered("/static/hello.txt"), self.situation)

    def whole(self, path, method="GET", **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway, timeout=60)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    @needs("nginx")
    def test_nginx(self):
        self.start_nginx(self.start_echo())
        status, headers, body = self.whole("/static/hello.txt")
        self.assertEqual((status, body, headers["content-length"]), (200, b"hello " * 1000, "6000"))
        etag = headers["etag"]
        status, headers, body = self.whole("/static/hello.txt", **{"Accept-Encoding": "gzip"})
        self.assertEqual((status, headers["transfer-encoding"], headers["content-encoding"], gzip.decompress(body)), (200, "chunked", "gzip", b"hello " * 1000))
        self.assertEqual(self.whole("/static/hello.txt", **{"If-None-Match": etag})[::2], (304, b""))
        status, headers, body = self.whole("/static/hello.txt", Range="bytes=6-10")
        self.assertEqual((status, body, headers["content-range"]), (206, b"hello", "bytes 6-10/6000"))
        status, headers, body = self.whole("/static/hello.txt", "HEAD")
        self.assertEqual((status, headers["content-length"], body), (200, "6000", b""))
        self.assertEqual(self.whole("/static/none")[0], 404)
        self.assertEqual(self.whole("/static/hello.txt", "DELETE")[0], 405)
        self.assertEqual(self.whole("/static/large.bin")[2], (self.folder / "files" / "large.bin").read_bytes())
        # Many requests at once, over kept connections.
        seen, lock = collections.Counter(), threading.Lock()

        def ask():
            connection = http.client.HTTPConnection("127.0.0.1", self.gateway, timeout=60)
            for _ in range(50):
                connection.request("GET", "/static/hello.txt")
                answer = connection.getresponse()
                with lock:
                    seen[answer.status, len(answer.read())] += 1
            connection.close()
        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(seen, {(200, 6000): 400})

    def assertEchoes(self, path):
        """Sends frames in both directions over a WebSocket, and ends it."""
        key = base64.b64encode(os.urandom(16))
        with socket.create_connection(("127.0.0.1", self.gateway), timeout=30) as connection:
            stream = connection.makefile("rwb")
            stream.write(b"GET %s HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: %s\r\n\r\n"
                         % (path.encode(), key))
            stream.flush()
            lines = list(iter(stream.readline, b"\r\n"))
            self.assertIn(b" 101 ", lines[0], lines)
            accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
            self.assertIn(b"sec-websocket-accept: " + accept, [line.strip().replace(b"Sec-WebSocket-Accept", b"sec-websocket-accept") for line in lines])
            for kind, text in [(0x81, b"frame %d" % number) for number in range(50)] + [(0x88, b"\x03\xe8")]:
                mask = os.urandom(4)
                stream.write(bytes([kind, 0x80 | len(text)]) + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(text)))
                stream.flush()
                self.assertEqual(stream.read(2 + len(text)), bytes([kind, len(text)]) + text)
            self.assertEqual(stream.read(), b"", "both ends are closed")

    def test_a_websocket(self):
        self.add_nodes("a")
        file = self.folder / "echo.py"
        file.write_text(ECHO)
        self.apply({**self.loaded("socket", replicas=1), "command": [sys.executable, "-SE", str(file), "{port}"]})
        self.until(lambda: self.is_answered("/socket"), self.situation)
        self.assertEchoes("/socket/x")

    @needs("nginx")
    def test_a_websocket_behind_nginx(self):
        self.start_nginx(self.start_echo())
        self.assertEchoes("/static/socket")

    @needs("nginx")
    def test_nginx_before_the_gateway_with_the_configuration_that_berth_prints(self):
        self.add_nodes("a")
        file, port, conf = self.folder / "echo.py", free_port(), self.folder / "front.conf"
        file.write_text(ECHO)
        self.apply(self.app(replicas=1), {**self.loaded("socket", replicas=1), "command": [sys.executable, "-SE", str(file), "{port}"]})
        self.until(lambda: self.is_answered("/socket") and self.is_answered("/app/x"), self.situation)
        printed = self.command("endpoints", "--format", "nginx").stdout
        self.assertIn("listen 80;", printed)
        folders = "".join(f"{name}_temp_path {self.folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        conf.write_text(f"daemon off;\nmaster_process off;\npid {self.folder}/front.pid;\nevents {{}}\nhttp {{\naccess_log off;\n{folders}"
                        + printed.replace("listen 80;", f"listen 127.0.0.1:{port};") + "}\n")
        self.spawn("front.log", program("nginx"), "-c", str(conf), "-e", f"{self.folder}/front_error.log")
        gateway, self.gateway = self.gateway, port
        try:
            self.until(lambda: self.is_answered("/app/x"), lambda: (self.folder / "front.log").read_text() + self.situation())
            self.assertEchoes("/socket/x")
            # Each event arrives when it is sent, not all at the end.
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                connection.sendall(b"GET /app/slow/60 HTTP/1.1\r\nhost: localhost\r\n\r\n")
                got = b""
                while b"data: 0\n" not in got:
                    got += connection.recv(65536)
                self.assertNotIn(b"data: 59\n", got)
        finally:
            self.gateway = gateway


class Monitoring(Peers):
    @needs("prometheus", "promtool")
    def test_prometheus(self):
        self.add_nodes("a")
        self.apply(self.loaded(replicas=1))
        self.until_answered("/app/echo")
        for _ in range(20):
            self.assertEqual(self.ask_for("/app/echo")[0], 200)
        token = self.folder / "read.token"
        token.write_text(self.token("read"))
        token.chmod(0o600)
        printed = self.berth("endpoints", "--format", "prometheus", "--server", f"http://127.0.0.1:{self.port}", BERTH_TOKEN_FILE=str(token))
        self.assertEqual(printed.returncode, 0, printed.stderr)
        config, port = self.folder / "prometheus.yml", free_port()
        config.write_text("global:\n  scrape_interval: 1s\n" + printed.stdout)
        self.spawn("prometheus.log", program("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={self.folder}/prometheus", f"--web.listen-address=127.0.0.1:{port}")

        def value(query):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            try:
                connection.request("GET", "/api/v1/query?" + urllib.parse.urlencode({"query": query}))
                found = json.loads(connection.getresponse().read())["data"]["result"]
                return float(found[0]["value"][1]) if found else None
            except (OSError, ValueError):
                return None  # it has not started yet
            finally:
                connection.close()
        self.until(lambda: (value('berth_requests_total{deployment="app",outcome="2xx"}') or 0) >= 20, lambda: (self.folder / "prometheus.log").read_text()[-3000:])
        self.assertEqual(value("up"), 1)
        self.assertGreater(value('histogram_quantile(0.99, sum by (le) (berth_request_seconds_bucket{deployment="app"}))'), 0)
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)) as metrics:
            metrics.request("GET", "/metrics")
            checked = subprocess.run([program("promtool"), "check", "metrics"], input=metrics.getresponse().read(), capture_output=True)
        self.assertEqual((checked.returncode, checked.stderr), (0, b""))


if __name__ == "__main__":
    unittest.main()
