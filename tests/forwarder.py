"""Forwards connections: a link that a test can cut or slow down.

  forwarder.py LISTEN HOST PORT SECONDS SEED   a process for another network: each piece after a random delay of up to SECONDS
"""
import random
import socket
import sys
import threading
import time


class Forwarder:
    """Passes connections on to a port, until it is cut: then nothing gets through, as with a broken cable."""

    def __init__(self, port, path=None, host="127.0.0.1", listen=0, delay=lambda: 0):
        """`path`: listens on a Unix socket there, which an agent uses without TLS. `delay`: seconds before each piece."""
        self.target, self.delay, self.is_cut = (host, port), delay, False
        if path:
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(str(path))
            self.listener.listen()
        else:
            self.listener = socket.create_server(("127.0.0.1", listen))
            self.port = self.listener.getsockname()[1]
        self.accepting = threading.Thread(target=self.accept, daemon=True)
        self.accepting.start()

    def accept(self):
        while True:
            try:
                near = self.listener.accept()[0]
            except OSError as error:
                if self.listener.fileno() < 0:
                    return
                print(f"forwarder: {error}", file=sys.stderr, flush=True)
                time.sleep(0.1)
                continue
            threading.Thread(target=self.join, args=(near,), daemon=True).start()

    def wait(self):
        while self.is_cut:
            time.sleep(0.02)

    def join(self, near):
        self.wait()
        with near:
            try:
                far = socket.create_connection(self.target, timeout=5)
            except OSError:
                return
            far.settimeout(None)
            with far:
                other = threading.Thread(target=self.copy, args=(near, far), daemon=True)
                other.start()
                self.copy(far, near)
                other.join()

    def copy(self, source, target):
        try:
            while data := source.recv(65536):
                time.sleep(self.delay())
                self.wait()
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


if __name__ == "__main__":
    dice = random.Random(int(sys.argv[5]))
    link = Forwarder(int(sys.argv[3]), host=sys.argv[2], listen=int(sys.argv[1]), delay=lambda: dice.uniform(0, float(sys.argv[4])))
    print("ready", flush=True)
    link.accepting.join()
