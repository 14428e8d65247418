// An HTTP/1.1 client for the command and the agent: blocking calls with a deadline, which another thread can stop. It
// keeps one connection open between calls. No error text contains the token. One call at a time per Client; a long
// poll beside other requests needs its own Client.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "berth/result.hpp"
#include "http/message.hpp"
#include "http/server_sent_events.hpp"

namespace berth::http {

struct ClientOptions {
  // "http://127.0.0.1:8080", "https://host:8443" or "unix:/path/to/socket".
  std::string url;
  // Sent as "Authorization: Bearer" over TLS or a Unix socket; empty: no such header. Over http:// it is not sent:
  // both sides prove that they know it before any request (secret.hpp), and the connection is encrypted.
  std::string token = {};
  std::string ca_file = {};  // certificates to trust instead of those of the system
  // SHA-256 as 64 hexadecimal digits, with or without colons. If it is that of the server's certificate, only this
  // certificate is accepted, whatever its names and dates. If it is that of an authority sent by the server, only
  // certificates that the authority has signed for this host are accepted.
  std::string fingerprint = {};
  // PEM with a certificate and its key, by which the server identifies this client; read again for every connection,
  // because it is renewed. Empty: none.
  std::string certificate_file = {};
  std::size_t body_bytes_max = 64 * 1024 * 1024;  // largest body of an answer; longer ones are an error
};

struct CallOptions {
  Headers headers = {};
  // For the whole call, connecting included. For a stream: until its header, and then between two pieces of data; 0:
  // no limit.
  std::chrono::milliseconds timeout{30'000};
  std::stop_token stop = {};  // ends the call with `cancelled`
};

class Client {
 public:
  // invalid_argument: the URL, the fingerprint or the CA file is wrong. Does not connect.
  static Result<Client> create(ClientOptions options);
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ~Client();

  // `target`: path and query, encoded ("/api/v1/events?after=3"; see encoded()). Any status is a value. Errors:
  //   unavailable       without advice: refused, name not known; with advice: reset, closed in the middle
  //   timeout           no complete answer within the timeout
  //   cancelled         stopped
  //   invalid_argument  the server's certificate is not accepted; the target is malformed
  //   io                the answer is not HTTP, or too long
  // A request on a kept connection that turns out to be closed is sent again over a new one, unless its method is POST.
  Result<Response> request(const std::string& method, const std::string& target, std::string body = {},
                           CallOptions options = {});

  // GET whose answer is delivered piece by piece, until the server ends it, `options.stop`, or the function returns
  // false (then the call succeeds). An answer with another status than 200 is returned whole, with its body, and no
  // piece is delivered; otherwise the Response has an empty body. Pieces are delivered as received: they may start
  // and end anywhere.
  using OnBytes = std::function<bool(std::string_view bytes)>;
  Result<Response> stream_bytes(const std::string& target, const OnBytes& on_bytes, CallOptions options = {});
  // The same for server-sent events; comments (keep-alive) count as data for the timeout, and are not delivered.
  using OnEvent = std::function<bool(const Event& event)>;
  Result<Response> stream_events(const std::string& target, const OnEvent& on_event, CallOptions options = {});

  // The URL, for messages; it contains no secret.
  const std::string& url() const noexcept;

 private:
  struct State;
  explicit Client(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Encodes text for a segment of a path or a value of a query: "a/b" becomes "a%2Fb".
std::string encoded(std::string_view text);

}  // namespace berth::http
