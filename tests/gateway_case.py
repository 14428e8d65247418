"""What tests of gateways share: a server with its gateway, deployments that accept requests, and the resources that its processes use."""
import http.client
import json
import os
import pathlib
import re
import shutil
import ssl
import subprocess
import sys
import threading
import time

from berth_case import BERTH, ROOT
from fleet_case import Fleet, free_port

# Answers with its name and the request; /slow/N sends N events, one every 50 ms; /exit ends it.
REPLICA = """
import http.server, json, os, socket, sys, time
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
        if self.path.endswith("/exit"):
            os._exit(1)
        if "/slow/" in self.path:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for i in range(int(self.path.rsplit("/", 1)[1])):
                event = f"data: {i}\\n\\n".encode()
                self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(event), event))
                time.sleep(0.05)
            return self.wfile.write(b"0\\r\\n\\r\\n")
        text = json.dumps({"replica": os.environ["BERTH_REPLICA"], "text": sys.argv[2], "body": body, "headers": dict(self.headers)}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    do_POST = do_GET
    def log_message(self, *words):
        pass
class Server(http.server.ThreadingHTTPServer):
    if sys.argv[1].startswith("/"):
        address_family = socket.AF_UNIX
        def server_bind(self):
            self.socket.bind(self.server_address)
            self.server_name, self.server_port = "replica", 0
        def get_request(self):
            return self.socket.accept()[0], ("replica", 0)
host, _, port = sys.argv[1].rpartition(":")
Server(sys.argv[1] if sys.argv[1].startswith("/") else (host or "127.0.0.1", int(port)), Answer).serve_forever()
"""


class Gateway(Fleet):
    gateway_more = ()  # options of the server

    def setUp(self):
        # The same for every start of the server: otherwise the gateway of a killed server does not continue.
        self.gateway_options = ("--gateway", f"127.0.0.1:{free_port()}", *self.gateway_more)
        super().setUp()

    def serve(self, *options):
        super().serve(*options)
        self.until(self.find_gateway, self.situation)

    def find_gateway(self):
        found = re.findall(r"takes requests at http://127\.0\.0\.1:(\d+)", (self.folder / "server.log").read_text())
        self.gateway = int(found[-1]) if found else None
        return self.gateway

    def log(self):
        """The log of the server and its gateway."""
        return (self.folder / "server.log").read_text()

    def app(self, name="app", text="v1", where="{port}", serving=None, **more):
        program = self.folder / "app.py"
        program.write_text(REPLICA)
        return {"name": name, "cpu": True, "replicas": 2, "command": ["python3", str(program), where, text], "stop_grace": "20s",
                "readiness": {"tcp": True, "every": "100ms"}, "serving": {"path": f"/{name}", "open": True, **(serving or {})}, **more}

    def loaded(self, name="app", version="v1", journal=None, serving=None, where="{port}", **more):
        """A deployment of tests/gateway_replica.py."""
        command = [sys.executable, "-SE", str(ROOT / "tests" / "gateway_replica.py"), where, version, *([str(journal)] if journal else [])]
        return {"name": name, "cpu": True, "command": command, "stop_grace": "20s", "readiness": {"tcp": True, "every": "100ms"},
                "serving": {"path": f"/{name}", "open": True, **(serving or {})}, **more}

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.gateway, timeout=20)

    def ask_for(self, path, body=None, headers=None, method=None):
        connection = self.connect()
        try:
            connection.request(method or ("POST" if body else "GET"), path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.headers
        finally:
            connection.close()

    def until_answered(self, path, count=1, **how):
        """Waits until `count` replicas answer."""
        def answering():
            answers = [self.ask_for(path, **how) for _ in range(2 * count)]
            return all(answer[0] == 200 for answer in answers) and len({json.loads(answer[1])["replica"] for answer in answers}) == count
        self.until(answering, lambda: f"{self.ask_for(path, **how)} {self.situation()}")

    def gateway_words(self):
        """The words of the command with which the server has started its gateway."""
        return next(pathlib.Path(self.folder).rglob("gateway-*/*/arguments")).read_text().splitlines()[1:]

    def replace_gateway(self, *options):
        """Starts a gateway that replaces the running one."""
        log = self.folder / f"gateway-{len(self.started)}.log"
        with log.open("w") as output:
            next_one = subprocess.Popen([BERTH, *self.gateway_words(), *options], env=self.environment(BERTH_RUNTIME_DIR=str(self.folder / "server")),
                                        stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        self.started.append(next_one)
        self.until(lambda: "takes requests at" in log.read_text(), lambda: log.read_text() + self.situation())
        return next_one

    def is_answered(self, path):
        try:
            return self.ask_for(path)[0] == 200
        except OSError:
            return False

    def watch(self, path="/app/x"):
        """Requests one after another, until the function that this returns is called; it returns their statuses."""
        answers, ends = [], threading.Event()

        def ask():
            while not ends.is_set():
                try:
                    answers.append(self.ask_for(path)[0])
                except (OSError, http.client.HTTPException) as error:
                    answers.append(repr(error))
                time.sleep(0.01)
        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()

        def stop():
            ends.set()
            for thread in threads:
                thread.join()
            return answers
        self.addCleanup(ends.set)
        return stop

    def stream(self, events):
        """Begins a stream of that many events. Returns a function that waits for its end."""
        connection = self.connect()
        connection.request("GET", f"/app/slow/{events}")
        answer = connection.getresponse()
        got = {"status": answer.status}

        def read():
            got["text"] = answer.read().decode()
            connection.close()
        thread = threading.Thread(target=read)
        thread.start()
        return lambda: (thread.join(), got)[1]

    def assertWhole(self, got, events):
        self.assertEqual(got["status"], 200)
        self.assertEqual(got["text"], "".join(f"data: {i}\n\n" for i in range(events)))

    def metric(self, name, **labels):
        """The sum of all lines with these labels, or None without such lines."""
        values = []
        for line in self.ask("GET", "/metrics")[2].splitlines():
            found = re.fullmatch(rf"{name}{{(.*)}} (\S+)", line)
            if found and all(f'{label}="{value}"' in found[1] for label, value in labels.items()):
                values.append(float(found[2]))
        return sum(values) if values else None

    # A separate gateway, with TLS.

    def make_certificate(self):
        """Creates certificate.pem and key.pem; returns a context for clients that trust them."""
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", self.folder / "key.pem", "-out", self.folder / "certificate.pem"],
                       check=True, capture_output=True)
        return ssl.create_default_context(cafile=str(self.folder / "certificate.pem"))

    def spawn(self, log, *command, **environment):
        """A program that runs until the test ends."""
        with (self.folder / log).open("w") as file:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=self.environment(**environment))
        self.started.append(process)
        return process

    def start_edge(self):
        """Starts the separate gateway; returns its process and port."""
        token, port = self.folder / "edge.token", free_port()
        token.write_text(self.command("token", "add", "join", "--gateway").stdout)
        token.chmod(0o600)
        process = self.spawn("edge.log", BERTH, "gateway", "--join", f"http://127.0.0.1:{self.port}", "--token-file", str(token), "--name", "edge", "--listen",
                             f"127.0.0.1:{port}", "--tls-certificate", str(self.folder / "certificate.pem"), "--tls-key", str(self.folder / "key.pem"),
                             BERTH_RUNTIME_DIR=str(self.folder / "edge"))
        return process, port

    def replica_processes(self, name="app"):
        """The processes by replica, such as app/0."""
        found = {}
        for pid, line in self.processes().items():
            if "gateway_replica.py" in line and (replica := environment_of(pid).get("BERTH_REPLICA", "")).startswith(f"{name}/"):
                found[replica] = pid
        return found

    def process_of(self, words, part=""):
        """The one process of this test whose command line begins like this and has this part, without its children."""
        found = {pid for pid, line in self.processes().items() if line.startswith(words) and part in line}
        found = [pid for pid in found if int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) not in found]
        self.assertEqual(len(found), 1, f"{words}: {self.processes()}")
        return found[0]


def program(name):
    """The program's path, also if only root has it in PATH, or None if it is not installed."""
    return shutil.which(name, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin")


def environment_of(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}  # it has just ended
    return dict(word.split("=", 1) for word in text.split("\0") if "=" in word)


def cpu_s(pid):
    """The processor time of a process so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_bytes(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
