// Opens connections to one server: finds its address, connects, and authenticates it.
#pragma once

#include <memory>
#include <string>

#include "berth/result.hpp"
#include "http/async.hpp"
#include "http/client.hpp"
#include "http/link.hpp"
#include "http/url.hpp"

namespace berth::http {

class Dialer {
 public:
  // invalid_argument: the URL, the token, the fingerprint or the CA file is wrong.
  static Result<Dialer> create(ClientOptions options);

  // unavailable: refused, name not known; invalid_argument: the server's certificate is not accepted. Ends early, with
  // any error, when the loop's connections are closed, and with `unavailable` at `by`.
  Async<Result<std::unique_ptr<Link>>> connect(Loop& loop, TimePoint by = TimePoint::max());

  const ClientOptions& options() const { return options_; }
  const Url& url() const { return url_; }

 private:
  class Resolving;
  using Endpoint = asio::generic::stream_protocol::endpoint;
  Async<Result<std::vector<Endpoint>>> resolve(Loop& loop);
  Async<Result<void>> secure(Wire& wire);
  Error unavailable(const std::string& what, const ErrorValue& error) const;

  ClientOptions options_;
  Url url_;
  std::shared_ptr<asio::ssl::context> tls_;  // null: neither a certificate nor a token to prove
};

}  // namespace berth::http
