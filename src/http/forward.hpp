// Passes a request on to another server and its answer back, both as they come: what one side does not take yet, the
// other side is not asked for. Headers that concern one connection alone are not passed on, and the lengths of bodies
// are written anew, so that nothing but the message itself reaches the other side.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "http/async.hpp"
#include "http/link.hpp"
#include "http/message.hpp"

namespace berth::http {

// Without those of one connection (RFC 9110, 7.6.1), those that Connection names included, and without the length.
Headers end_to_end(Headers headers);
// Whether the client asks for a WebSocket. No other protocol is passed on: with HTTP/2 on the connection, requests
// would get past the checks of a proxy.
bool asks_for_upgrade(const Headers& headers);

// The first lines, up to the empty one. `headers` without those of one connection.
std::string request_text(const Head& request, const Headers& headers, const Link::Body& body);
std::string response_text(int status, const Headers& headers, const Link::Body& body, bool keeps_connection);

struct ForwardOptions {
  // The head that is sent, as request_text() writes it, and what was read of the body before.
  std::string text;
  std::string body_begin = {};
  // The rest of the body is sent after "100 Continue", which the head asks for: a server that does not want the request
  // is not sent it, and it can be passed on to another one.
  bool waits_for_continue = false;
  // Of each piece of the client's body, and of each write to it.
  std::chrono::milliseconds client_time{20'000};
  // Until the answer begins, from the last piece of the request that the server took.
  std::chrono::milliseconds first_byte_time{600'000};
  std::chrono::milliseconds silence_time{600'000};  // between two pieces of the answer; not after an upgrade
  bool keeps_client = true;                         // false: its connection is closed after the answer
  // Called with the head of the answer, whose headers it may change. False: the answer is not passed on.
  std::function<bool(Head& answer)> on_answer = nullptr;
  // Called when all of the answer is read, before its last piece reaches the client: the server can take another
  // request.
  std::function<void()> on_server_free = nullptr;
};

struct Forwarded {
  enum class End : std::uint8_t {
    done,
    withheld,       // on_answer said so; the answer was not read further
    client_gone,    // or its body is malformed or too slow
    server_failed,  // closed its connection, did not answer in time, or not in HTTP
  };
  End end = End::done;
  bool is_late = false;         // the server has failed because it did not answer in time
  bool reached_client = false;  // at least a byte of an answer
  int status = 0;               // of the answer; 0: there was none
  bool is_client_kept = false;  // the connection can take the next request
  bool is_server_kept = false;
  // Why, for messages; empty where it is done.
  std::string problem = {};
};

// Neither connection is closed at the end unless it cannot be used again.
Async<Forwarded> forward(Link& client, const Head& request, Link& server, const ForwardOptions& options);

}  // namespace berth::http
