// For tests: a gateway that takes the connections of relays and sends what its clients ask for to the target that a
// header names, and servers on their own threads.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "http/client.hpp"
#include "http/forward.hpp"
#include "http/secret.hpp"
#include "http/server.hpp"
#include "relay/relay.hpp"
#include "relay/relay_links.hpp"

namespace berth::relay::test {

using namespace std::chrono_literals;

inline bool eventually(const std::function<bool()>& condition, Duration within = std::chrono::seconds(30)) {
  for (const Deadline deadline = Deadline::after(real_clock(), within); !deadline.passed(real_clock().now());) {
    if (condition()) return true;
    std::this_thread::yield();
  }
  return false;
}

// A server on its own thread.
class Running {
 public:
  Running(http::ServerOptions options, auto handler) : server(std::move(options), std::move(handler)) {
    url = "http://" + server.listen("127.0.0.1:0").value();
    thread_ = std::thread([this] { server.run(); });
  }
  ~Running() { end(0ms); }
  void end(std::chrono::milliseconds time) {
    if (!thread_.joinable()) return;
    server.shutdown(time);
    thread_.join();
  }
  template <class Function>
  auto on_thread(Function function) {
    std::promise<decltype(function())> result;
    server.post([&] { result.set_value(function()); });
    return result.get_future().get();
  }
  http::Server server;
  std::string url;

 private:
  std::thread thread_;
};

inline http::ServerOptions knowing(const std::string& key) {
  http::ServerOptions options;
  options.serves_page = false;
  if (!key.empty())
    options.key_of =
        [proof = http::proof_of(http::sha256(key))](std::string_view identity) -> std::optional<http::KnownKey> {
      if (identity != proof.identity) return std::nullopt;
      return http::KnownKey{"relay", proof.key};
    };
  return options;
}

// With a key, it accepts only relays that prove that they know the key.
class TestGateway {
 public:
  explicit TestGateway(std::string key = {})
      : key_(std::move(key)),
        running_(knowing(key_), http::Server::Proxy([this](http::Link& link, http::Head& head, const http::Peer& peer) {
                   return handle(link, head, peer);
                 })),
        links_(running_.server.loop()) {}
  ~TestGateway() {
    running_.server.post([this] { links_.end(); });
    running_.end(100ms);
  }
  TestGateway(const TestGateway&) = delete;
  TestGateway& operator=(const TestGateway&) = delete;

  const std::string& url() const { return running_.url; }
  // "127.0.0.1:40001"
  std::string address() const { return running_.url.substr(running_.url.find("//") + 2); }
  std::size_t idle() {
    return running_.on_thread([this] { return links_.idle(NodeId("n1")); });
  }
  std::size_t missing() {
    return running_.on_thread([this] { return links_.missing(NodeId("n1")); });
  }
  Result<http::Response> ask(const std::string& target, const std::string& body = "hello") const {
    return http::Client::create({.url = url()})
        ->request("POST", "/path", body, {.headers = {{std::string(header_target), target}, {"x-berth-other", "1"}}});
  }
  // The complete answer, or the error.
  std::string read_stream(
      const std::string& target, const std::string& path = "/",
      const std::function<void(std::string_view)>& on_piece = [](std::string_view) {}) const {
    std::string all;
    const auto read =
        http::Client::create({.url = url()})
            ->stream_bytes(path, [&](std::string_view bytes) { return all += bytes, on_piece(all), true; },
                           {.headers = {{std::string(header_target), target}}, .timeout = 0ms});
    return read ? (read->status == 200 ? all : "status " + std::to_string(read->status)) : read.error().to_text();
  }

 private:
  http::Async<bool> handle(http::Link& link, http::Head& head, const http::Peer& peer) {
    if (head.target == relay_path) {
      if (!key_.empty() && peer.credential != "relay") co_return false;
      co_await links_.keep(link, NodeId(std::string(head.headers.get("x-berth-node").value_or(""))));
      co_return false;
    }
    http::Link* const to = co_await links_.take(NodeId("n1"), real_clock().now() + 30s);
    if (to == nullptr) co_return false;
    http::ForwardOptions options;
    http::Headers headers = http::end_to_end(head.headers);
    options.waits_for_continue = link.body().length.value_or(0) > 1000;
    if (options.waits_for_continue) headers.set("expect", "100-continue");
    options.text = http::request_text(head, headers, link.body());
    const http::Forwarded forwarded = co_await http::forward(link, head, *to, options);
    links_.give_back(NodeId("n1"), *to, forwarded.is_server_kept);
    co_return forwarded.is_client_kept;
  }

  const std::string key_;
  Running running_;
  RelayLinks links_;
};

}  // namespace berth::relay::test
