// Forwards a request to another server and its answer back, both as they arrive, with back-pressure in both
// directions. Hop-by-hop headers are not forwarded, and body lengths are rewritten, so that only the message itself
// reaches the other side.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "http/async.hpp"
#include "http/link.hpp"
#include "http/loop.hpp"
#include "http/message.hpp"

namespace berth::http {

// The headers without hop-by-hop ones (RFC 9110, 7.6.1), including those that Connection names, and without the
// length.
Headers end_to_end(Headers headers);
// Waits until this connection was ended by its other side, even if nothing reads from it. False: `ended` came first.
Async<bool> wait_for_hang_up(Link& link, Signal& ended);
// Whether the client asks for a WebSocket. No other upgrade is forwarded: with HTTP/2 on the connection, requests
// would bypass the checks of a proxy.
bool asks_for_upgrade(const Headers& headers);

// The first lines, up to the empty one. `headers` has no hop-by-hop headers.
std::string request_text(const Head& request, const Headers& headers, const Link::Body& body);
std::string response_text(int status, const Headers& headers, const Link::Body& body, bool keeps_connection);

struct ForwardOptions {
  // The head to send, as written by request_text(), and the part of the body that has already been read.
  std::string text;
  std::string_view body_begin = {};
  // The rest of the body is sent only after "100 Continue", which the head requests: a server that refuses the
  // request never gets the body, so that the request can be forwarded to another one.
  bool waits_for_continue = false;
  // Time limit for each piece of the client's body, and for each write to the client.
  std::chrono::milliseconds client_time{20'000};
  // Time limit until the answer begins, from the last piece of the request that the server accepted.
  std::chrono::milliseconds first_byte_time{600'000};
  std::chrono::milliseconds silence_time{600'000};  // limit between two pieces of the answer; not after an upgrade
  bool keeps_client = true;                         // false: its connection is closed after the answer
  // Called with the head of the answer, whose headers it may change. False: the answer is not forwarded.
  std::function<bool(Head& answer)> on_answer = nullptr;
  // Called when body_begin is sent and on_answer has accepted the answer: it is not used again.
  std::function<void()> on_body_begin_free = nullptr;
  // Called when all of the answer is read, before its last piece reaches the client: the server can take another
  // request.
  std::function<void()> on_server_free = nullptr;
};

struct Forwarded {
  enum class End : std::uint8_t {
    done,
    withheld,       // on_answer returned false; the answer was not read further
    client_gone,    // the client is gone, or its body is malformed or too slow
    server_failed,  // the server closed its connection, was too late, or did not answer in HTTP
  };
  End end = End::done;
  bool is_late = false;         // server_failed because it did not answer in time
  bool reached_client = false;  // at least one byte of an answer
  int status = 0;               // of the answer; 0: there was none
  bool is_client_kept = false;  // the connection can take the next request
  bool is_server_kept = false;
  // The reason, for messages; empty if done.
  std::string problem = {};
};

// Neither connection is closed at the end unless it cannot be used again.
Async<Forwarded> forward(Link& client, const Head& request, Link& server, const ForwardOptions& options);

}  // namespace berth::http
