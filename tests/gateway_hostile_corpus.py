"""Bad requests and bad answers for tests/gateway_hostile_test.py. MARK is replaced by a word that no replica may see."""

LINE = b"POST /app/MARK HTTP/1.1\r\n"
HOST = b"Host: localhost\r\n"
HIDDEN = b"GET /app/MARK HTTP/1.1\r\nHost: localhost\r\n\r\n"
LENGTH = b"Content-Length: "
CHUNKED = b"Transfer-Encoding: chunked\r\n"
GET = b"GET /app/MARK HTTP/1.1\r\n"


def post(headers, body=b""):
    return LINE + HOST + headers + b"\r\n" + body


def get(headers):
    return GET + HOST + headers + b"\r\n"


# Requests whose end can be read in two ways.
LENGTHS = [post(headers, body) for headers, body in (
    (LENGTH + b"4\r\n" + CHUNKED, b"0\r\n\r\n" + HIDDEN),
    (CHUNKED + LENGTH + b"4\r\n", b"0\r\n\r\n" + HIDDEN),
    (LENGTH + b"5\r\n" + LENGTH + b"6\r\n", b"abcdef"),
    (LENGTH + b"5\r\n" + LENGTH + b"5\r\n", b"abcde"),
    (LENGTH + b"5, 5\r\n", b"abcde"), (LENGTH + b"+5\r\n", b"abcde"), (LENGTH + b"-1\r\n", b""), (LENGTH + b"0x5\r\n", b"abcde"), (LENGTH + b"5 5\r\n", b"abcde"),
    (LENGTH + b"5;\r\n", b"abcde"), (LENGTH + b"\r\n", b"abcde"), (LENGTH + b"five\r\n", b"abcde"), (LENGTH + b"99999999999999999999999\r\n", b""),
    (LENGTH + b"18446744073709551616\r\n", b""), (b"Content-Length : 5\r\n", b"abcde"), (b" Content-Length: 5\r\n", b"abcde"),
    (b"Transfer-Encoding : chunked\r\n", b"0\r\n\r\n"), (b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n" + HIDDEN),
    (b"Transfer-Encoding: identity\r\n", HIDDEN), (b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n" + HIDDEN),
    (b"Transfer-Encoding: chunked, identity\r\n", HIDDEN), (b"Transfer-Encoding: chunked, chunked\r\n", b"0\r\n\r\n" + HIDDEN),
    (b"Transfer-Encoding: chunked;q=1\r\n", b"0\r\n\r\n" + HIDDEN), (b"Transfer-Encoding: \"chunked\"\r\n", b"0\r\n\r\n"),
    (b"Transfer-Encoding: \x0bchunked\r\n", b"0\r\n\r\n" + HIDDEN), (b"Transfer-Encoding:\r\n chunked\r\n", b"0\r\n\r\n" + HIDDEN),
    (b"Transfer-Encoding: identity\r\n" + CHUNKED, b"0\r\n\r\n" + HIDDEN), (CHUNKED + b"Transfer-Encoding: identity\r\n", b"0\r\n\r\n" + HIDDEN),
    (CHUNKED + CHUNKED, b"0\r\n\r\n" + HIDDEN), (b"Transfer-Encoding: chunked\0\r\n", b"0\r\n\r\n" + HIDDEN), (b"Transfer-Encoding: chunked,\r\n", b"0\r\n\r\n" + HIDDEN),
    (b"Transfer-Encoding\t: chunked\r\n", b"0\r\n\r\n" + HIDDEN), (b"Transfer_Encoding: chunked\r\n" + LENGTH + b"five\r\n", b""), (b"X: y\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n" + HIDDEN),
    (LENGTH + b"\xd9\xa5\r\n", b"abcde"),
    # A body that is shorter than its length says.
    (LENGTH + b"100\r\n", b"abc"),
)]

# Bodies are read before a request is passed on if they are short or contain the model.
CHUNKS = [b"POST /v1/MARK HTTP/1.1\r\n" + HOST + CHUNKED + b"\r\n" + body for body in (
    b"zz\r\n\r\n" + HIDDEN, b"-1\r\n\r\n" + HIDDEN, b"0x5\r\nabcde\r\n0\r\n\r\n", b"5\r\nabcdeXX0\r\n\r\n" + HIDDEN, b"5\nabcde\n0\n\n" + HIDDEN, b" 5\r\nabcde\r\n0\r\n\r\n",
    b"ffffffffffffffffff\r\n" + HIDDEN, b"5;a=\nb\r\nabcde\r\n0\r\n\r\n", b"5\r\nabc", b"1;" + b"x" * 100_000, b"0\r\n" + b"a: b\r\n" * 20_000 + b"\r\n",
)]

LINES = [
    # Ends of lines, folded lines, control characters.
    GET.replace(b"\r\n", b"\n") + HOST.replace(b"\r\n", b"\n") + b"\n",
    get(b"X: y\nZ: 1\r\n"), get(b"X: y\rZ: 1\r\n"), get(b"X: y\r\r\n"), get(b"X: y\r\n folded\r\n"), get(b"X: y\r\n\tfolded\r\n"), GET + b" X: y\r\n" + HOST + b"\r\n",
    get(b"X: a\0b\r\n"), get(b"X\0: b\r\n"), get(b"X: a\x01b\r\n"), get(b"X: a\x7fb\r\n"),
    # Header names.
    get(b"no colon\r\n"), get(b": empty\r\n"), get(b"X : y\r\n"), get(b"X(y): z\r\n"), get(b"\xc3\xa4: z\r\n"), get(b"X\ty: z\r\n"), get(b"\"X\": z\r\n"),
    # The first line.
    b"GET  /app/MARK HTTP/1.1\r\n" + HOST + b"\r\n", b"GET\t/app/MARK\tHTTP/1.1\r\n" + HOST + b"\r\n", b"GET /app/MARK\r\n\r\n", b"GET /app/MARK HTTP/1.1 x\r\n" + HOST + b"\r\n",
    b"GET /app/MARK HTTP/1.0\r\n" + HOST + b"\r\n", b"GET /app/MARK HTTP/2.0\r\n" + HOST + b"\r\n", b"GET /app/MARK http/1.1\r\n" + HOST + b"\r\n",
    b"GET /app/MARK HTTP/1.\r\n" + HOST + b"\r\n", b"GE(T /app/MARK HTTP/1.1\r\n" + HOST + b"\r\n", b" GET /app/MARK HTTP/1.1\r\n" + HOST + b"\r\n",
    b"\xff\xfe /app/MARK HTTP/1.1\r\n" + HOST + b"\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\0" * 100, b"GARBAGE\r\n\r\n",
]

TARGETS = [b"GET " + target + b" HTTP/1.1\r\n" + HOST + b"\r\n" for target in (
    b"http://localhost/app/MARK", b"http://other/app/MARK", b"//app/../app/MARK/..", b"/app/../app/MARK", b"/app/%2e%2e/app/MARK", b"/app/.%2e/MARK", b"/app/./MARK", b"/app/MARK%00",
    b"/app/MARK\0", b"/app/MARK%zz", b"/app/MARK%4", b"/app/MARK#part", b"app/MARK", b"*", b"/app\\MARK", b"/app/..%2fMARK", b"/app/%2e%2e%2fapp/MARK", b"/app/..%5cMARK", b"/app/MARK\x01", b"/nowhere/MARK",
    b"/application/MARK", b"/App/MARK", b"/app/" + b"x" * 20_000 + b"MARK",
)]

HOSTS = [GET + hosts + b"\r\n" for hosts in (
    b"", HOST + HOST, HOST + b"Host: other\r\n", b"Host: a b\r\n", b"Host: user@localhost\r\n", b"Host:\r\n", b"Host: localhost/app\r\n", b"Host: localhost, other\r\n",
    b"Host: evil.example\r\n", b"Host: localhost:99999999\r\n", b"Host: [::1\r\n", b"Host: \xff\xfe\r\n", b"Host: \xc3\xa4.example\r\n",
)]

# Upgrades to what is not a WebSocket of one whole request, and the start of another protocol.
UPGRADES = [
    b"GET /app/MARK HTTP/1.0\r\n" + HOST + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HIDDEN,
    b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n" + HIDDEN,
    b"GET /.berth/relay HTTP/1.1\r\n" + HOST + b"Connection: upgrade\r\nUpgrade: berth-relay-1\r\nx-berth-node: a\r\n\r\n" + HIDDEN,
    post(b"Connection: upgrade\r\nUpgrade: websocket\r\n" + LENGTH + b"five\r\n", HIDDEN), post(b"Connection: upgrade\r\nUpgrade: websocket\r\n" + LENGTH + b"4\r\n" + CHUNKED, b"0\r\n\r\n" + HIDDEN),
]

LONG = [
    get(b"X: " + b"x" * 20_000 + b"\r\n"), get(b"x: y\r\n" * 5_000), get(b"Cookie: " + b"a=b; " * 5_000 + b"\r\n"), get(b"x" * 20_000 + b": y\r\n"),
    # Requests from pages of other sites, and wrong keys.
    get(b"Origin: https://evil.example\r\n"), get(b"Sec-Fetch-Site: cross-site\r\n"), get(b"sec-fetch-site: same-site\r\n"), get(b"Authorization: Bearer wrong\r\n"), get(b"Authorization: Basic dXNlcjpwYXNz\r\n"), get(b"x-api-key: wrong\r\n"),
    get(b"x-berth-deployment: ../app\r\n"), get(b"x-berth-deployment: app\0\r\n"), get(b"x-berth-deployment: \xff\xfe\r\n"), get(b"Authorization: Bearer \xff\xfe\r\n"), get(b"x-api-key: \xc0\x80\r\n"),
]

REQUESTS = LENGTHS + CHUNKS + LINES + TARGETS + HOSTS + UPGRADES + LONG

# Bodies in which the model is looked for, and the status of the answer.
BODIES = [
    (b'{"model": "m", "model": "m"}', 400), (b'{"model": "m", "model": "other"}', 400), (b'{"model": "m", "\\u006dodel": "other"}', 400), (b'{"model": 5}', 404), (b'{"model": null}', 404),
    (b'{"model": ["m"]}', 404), (b'{"model": {"model": "m"}}', 404), (b'{"other": {"model": "m"}}', 404), (b'["model", "m"]', 400), (b'"model"', 400), (b'{"model": "m"} x', 400),
    (b'{"model": "m"}{"model": "m"}', 400), (b'{"model": "m",}', 400), (b'{"model": "m"', 400), (b"{'model': 'm'}", 400), (b'\xef\xbb\xbf{"model": "m"}', 400),
    (b'{"model": "m", "x": "\xff"}', 400), (b'{"model": "m", "x": "\xc0\x80"}', 400), (b'{"model": "m\0"}', 400), (b'{"model": "m"}\0', 400), (b'{"model": "m\\u0000"}', 404),
    (b'{"model": "m", "x": "\\ud800"}', 400), (b'{"model": "m", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400), (b'{"model": "' + b"m" * 5000 + b'"}', 400), (b'{"model": "M"}', 404),
    (b'{"model": "m "}', 404), (b'{"model": "none"}', 404), (b'{"model": ""}', 404), (b'{"x": "' + b"x" * 300_000 + b'", "model": "m"}', 413), (b"\0" * 100, 400), (b"model=m", 400),
]

# Valid but odd requests, and how often the word reaches the replica.
PASSED = [
    (get(b"X:y\r\nConnection: close\r\n"), 1), (b"\r\n\r\n" + get(b"Connection: close\r\n"), 1), (get(b"X: \xc3\xa4\r\nConnection: close\r\n"), 1), (get(b"X:\r\nConnection: close\r\n"), 1),
    (post(LENGTH + b"4\r\nConnection: close\r\n", b"abcd"), 1), (post(CHUNKED + b"Connection: close\r\n", b"4;a=b\r\nabcd\r\n0\r\nx: y\r\n\r\n"), 1),
    (get(b"") + get(b"Connection: close\r\n"), 2), (b"DELETE /app/MARK HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n", 1),
    (b"GET /app/MARK?a=%00&b=../.. HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n", 1), (b"GET /app/a%2Fb/MARK HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n", 1),
    # Not a valid URI, but curl sends such letters unchanged.
    (b"GET /app/\xc3\xa4MARK HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n", 1), (b"GET /app/MARK\xff HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n", 1),
    (get(b"X: \xff\xfe\r\nx-request-id: \xff\xfe\r\ntraceparent: \xff\xfe\r\nConnection: close\r\n"), 1),
    # A replica that does not change the protocol gets the next request as a separate one.
    (get(b"Connection: upgrade\r\nUpgrade: websocket\r\n") + get(b"Connection: close\r\n"), 2), (get(b"Connection: upgrade, close\r\nUpgrade: h2c\r\n"), 1),
    # A body that is longer than its length says: the rest is not a request.
    (post(LENGTH + b"3\r\n", b"abcPOST\r\n\r\n"), 1),
]

# Headers that try to pass for something else, and what the replica sees.
TRICKS = [
    (b"x-berth-to: planted", b"x-forwarded-for: 127.0.0.1"), (b"x-berth-load: planted", b"x-forwarded-for: 127.0.0.1"), (b"X-BERTH-Refused: planted", b"x-forwarded-for"),
    (b"x-forwarded-for: planted", b"x-forwarded-for: 127.0.0.1"), (b"x-forwarded-proto: planted", b"x-forwarded-proto: http"), (b"te: planted", b"x-forwarded-for"),
    (b"proxy-authorization: planted", b"x-forwarded-for"), (b"keep-alive: planted", b"x-forwarded-for"), (b"connection: x-own\r\nx-own: planted", b"x-forwarded-for"),
    (b"connection: x-forwarded-for", b"x-forwarded-for: 127.0.0.1"), (b"connection: host", b"x-forwarded-for: 127.0.0.1"), (b"cookie: berth-1=planted; own=1", b"cookie: own=1"),
    (b"upgrade: planted", b"x-forwarded-for"), (b"connection: upgrade\r\nupgrade: planted", b"x-forwarded-for"), (b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: planted", b"x-forwarded-for"),
    (b"connection: upgrade\r\nupgrade: websocket\r\nupgrade: planted", b"upgrade: websocket"), (b"x-forwarded-for: 1\r\nX-Forwarded-For: planted", b"x-forwarded-for: 127.0.0.1"), (b"trailer: planted", b"x-forwarded-for"),
    (b"X_Forwarded_For: planted", b"x-forwarded-for: 127.0.0.1"), (b"x_berth_to: planted", b"x-forwarded-for"), (b"Content_Length: 5\r\nx_own: planted", b"x-forwarded-for"),
]

OK = b"HTTP/1.1 200 OK\r\n"
WRONG = "not HTTP/1.1"
# By name: what the replica answers, after which it closes the connection unless the name begins with "kept"; the status that the client gets; and words of the reason.
ANSWERS = {
    "nothing": (b"", 502, "closed the connection"),
    "part-of-a-line": (b"HTTP/1.1 2", 502, "closed the connection"),
    "part-of-a-head": (OK + b"content-length: 5\r\n", 502, "closed the connection"),
    "another-protocol": (b"SSH-2.0-OpenSSH_9.2\r\n", 502, ""),
    "binary": (bytes(range(256)), 502, WRONG),
    "kept-binary": (b"\x15\x03\x01\x00\x02\x02\x16\r\n\r\n", 502, WRONG),
    "bare-line-ends": (OK.replace(b"\r\n", b"\n") + b"content-length: 0\n\n", 502, WRONG),
    "folded": (OK + b"x: y\r\n z\r\ncontent-length: 0\r\n\r\n", 502, WRONG),
    "control-character": (OK + b"x: a\0b\r\ncontent-length: 0\r\n\r\n", 502, WRONG),
    "two-lengths": (OK + b"content-length: 5\r\ncontent-length: 6\r\n\r\nabcdef", 502, WRONG),
    "length-and-chunks": (OK + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 502, WRONG),
    "other-coding": (OK + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 502, "transfer encoding"),
    "negative-length": (OK + b"content-length: -5\r\n\r\n", 502, WRONG),
    "no-status": (b"HTTP/1.1 OK\r\ncontent-length: 0\r\n\r\n", 502, WRONG),
    "long-status": (b"HTTP/1.1 2000 OK\r\ncontent-length: 0\r\n\r\n", 502, WRONG),
    "other-version": (b"HTTP/3.0 200 OK\r\ncontent-length: 0\r\n\r\n", 502, WRONG),
    "long-header": (OK + b"x: " + b"x" * 100_000 + b"\r\n\r\n", 502, "too long"),
    "many-headers": (OK + b"x: y\r\n" * 20_000 + b"\r\n", 502, "too long"),
    # Nothing was passed on before its end was read.
    "bad-chunk": (OK + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n", 502, "bad chunk"),
    # The head is right: the client sees that the rest is not complete.
    "short-body": (OK + b"content-length: 100\r\n\r\nabc", 200, ""),
    # The rest belongs to no answer.
    "kept-long-body": (OK + b"content-length: 3\r\n\r\nabcplantedHTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nplanted", 200, ""),
    "kept-second-answer": (OK + b"content-length: 0\r\n\r\n" + OK + b"content-length: 7\r\n\r\nplanted", 200, ""),
    "kept-body-of-none": (b"HTTP/1.1 204 No Content\r\n\r\n" + OK + b"content-length: 7\r\n\r\nplanted", 204, ""),
    "upgrade-unasked": (b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nplanted", 502, "without being asked"),
    "many-interim-answers": (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000 + OK + b"content-length: 0\r\n\r\n", 502, "interim answers"),
    "low-status": (b"HTTP/1.1 007 OK\r\ncontent-length: 0\r\n\r\n", 502, "status"),
    "own-cookie": (OK + b"connection: close\r\nset-cookie: berth-01234567=planted; Path=/\r\ncontent-length: 0\r\n\r\n", 200, ""),
    "own-headers": (OK + b"connection: close\r\nx-berth-replica: planted\r\nx-berth-refused: planted\r\ncontent-length: 0\r\n\r\n", 200, ""),
}
