// A gateway, the relay of a node and replicas, all real, in one process.
#pragma once
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "gateway/access_log.hpp"
#include "gateway/gateway.hpp"
#include "http/client.hpp"
#include "http/secret.hpp"
#include "http/test_closed_port.hpp"
#include "relay/relay.hpp"

namespace berth::gateway {

using namespace std::chrono_literals;

inline bool eventually(const std::function<bool()>& condition, std::chrono::seconds within = 10s) {
  for (const Deadline deadline = Deadline::after(real_clock(), within); !deadline.passed(real_clock().now());) {
    if (condition()) return true;
    std::this_thread::yield();
  }
  return false;
}

// Opens a connection and sends `text`.
inline int sent(const std::string& url, const std::string& text) {
  const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1))));
  EXPECT_EQ(::connect(client, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  EXPECT_EQ(::send(client, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  return client;
}

class OnThread {
 public:
  OnThread(http::ServerOptions options, auto handler) : server(std::move(options), std::move(handler)) {
    url = "http://" + server.listen("127.0.0.1:0").value();
    thread_ = std::thread([this] { server.run(); });
  }
  ~OnThread() { end(); }
  void end() {
    if (!thread_.joinable()) return;
    server.shutdown(0ms);
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

// A replica that answers at once, or holds requests until release().
class Replica {
 public:
  explicit Replica(std::string name, bool holds = false)
      : name_(std::move(name)),
        holds_(holds),
        on_({}, http::Server::Handler(
                    [this](const http::Request& request, const http::Responder& to) { answer(request, to); })) {}
  const std::string& url() const { return on_.url; }
  std::size_t held() {
    const std::lock_guard lock(mutex_);
    return held_.size();
  }
  void release(std::size_t count) {
    const std::lock_guard lock(mutex_);
    for (; count > 0 && !held_.empty(); --count) {
      held_.front().send({200, {{"x-name", name_}}, "late"});
      held_.erase(held_.begin());
    }
  }
  http::Request last() {
    const std::lock_guard lock(mutex_);
    return last_;
  }

 private:
  void answer(const http::Request& request, const http::Responder& to) {
    const std::lock_guard lock(mutex_);
    last_ = request;
    if (holds_) return held_.push_back(to);
    to.send({200, {{"x-name", name_}, {"x-berth-load", "forged"}}, request.body});
  }
  const std::string name_;
  const bool holds_;
  std::mutex mutex_;
  std::vector<http::Responder> held_;
  http::Request last_;
  OnThread on_;
};

class Fleet {
 public:
  explicit Fleet(GatewayOptions options = {}, relay::RelayOptions relay_options = {.node = "n1"})
      : on_({.serves_page = false, .on_refused = [this](http::Response& answer) { gateway_->note_refusal(answer); }},
            http::Server::Proxy([this](http::Link& link, http::Head& head, const http::Peer& peer) {
              return gateway_->handle(link, head, peer);
            })),
        relay_on_({}, http::Server::Handler()) {
    options.relay_of = [](const http::Head& head, const http::Peer&) {
      return std::optional(NodeId(std::string(head.headers.get("x-berth-node").value_or(""))));
    };
    options.on_ended = [this](const fleet::RequestRecord& record) { log_.ended(record, real_clock().now()); };
    on_.on_thread([&] { return gateway_.emplace(on_.server.loop(), options), 0; });
    relay_on_.on_thread([&] { return relay_.emplace(relay_on_.server.loop(), relay_options), 0; });
  }
  ~Fleet() {
    relay_on_.end();
    relay_.reset();
    on_.end();
    gateway_.reset();
  }

  Deployment& add(const std::string& name, const std::vector<std::string>& urls, std::uint32_t concurrent_max = 4) {
    Deployment& deployment = view_.deployments[DeploymentId(name)];
    deployment.name = DeploymentId(name);
    deployment.serving.open = true;
    for (const std::string& url : urls) {
      const std::string replica =
          name + "/" + std::to_string(deployment.endpoints.size()) + "#" + std::to_string(++generation_);
      deployment.endpoints.push_back({replica, NodeId("n1"), concurrent_max, fleet::EndpointState::ready});
      targets_.push_back({replica, url, concurrent_max, false});
    }
    return deployment;
  }
  std::string add_caller(const std::string& id, const std::string& deployment, std::uint32_t weight = 1) {
    const std::string key = "call-" + id;
    Caller caller;
    caller.id = id;
    caller.sha256 = http::sha256(key);
    caller.deployment = DeploymentId(deployment);
    caller.weight = weight;
    view_.callers[caller.sha256] = caller;
    return key;
  }
  // Applies to all replicas.
  void set_concurrent_max(std::uint32_t concurrent_max) {
    for (auto& [name, deployment] : view_.deployments)
      for (Endpoint& endpoint : deployment.endpoints) endpoint.concurrent_max = concurrent_max;
    for (relay::Target& target : targets_) target.concurrent_max = concurrent_max;
  }
  void apply() {
    apply_to_gateway();
    apply_to_relay();
  }
  void apply_to_gateway() {
    on_.on_thread([&] { return gateway_->set(view_), 0; });
  }
  void apply_to_relay() {
    relay_on_.on_thread([&] {
      relay_->set_targets(targets_);
      relay_->set_gateways({{.url = on_.url}});
      return 0;
    });
  }
  const std::string& url() const { return on_.url; }
  std::size_t waiting() {
    return on_.on_thread([&] { return gateway_->waiting(); });
  }
  std::map<std::string, std::uint32_t> in_flight() {
    return relay_on_.on_thread([&] { return relay_->admission().in_flight(); });
  }
  http::Response ask(const std::string& path, const std::string& body = "", http::Headers headers = {}) {
    const auto answer = http::Client::create({.url = url()})
                            ->request(body.empty() ? "GET" : "POST", path, body, {.headers = std::move(headers)});
    return answer ? *answer : http::Response{0, {}, answer.error().to_text()};
  }
  FleetView& view() { return view_; }
  std::string log() {
    return on_.on_thread([&] { return lines_; });
  }
  fleet::GatewayReport report() {
    return on_.on_thread([&] { return gateway_->report(); });
  }
  // Records of this many requests: a record is made after the client has its answer.
  std::vector<fleet::RequestRecord> records(std::size_t count) {
    EXPECT_TRUE(eventually([&] {
      for (fleet::RequestRecord& record : report().requests) records_.push_back(std::move(record));
      return records_.size() >= count;
    }));
    return std::exchange(records_, {});
  }
  void keep_relays(const std::set<std::string>& credentials) {
    on_.on_thread([&] { return gateway_->keep_relays(credentials), 0; });
  }

 private:
  FleetView view_;
  std::vector<fleet::RequestRecord> records_;
  std::vector<relay::Target> targets_;
  std::uint64_t generation_ = 0;
  std::string lines_;  // of the log
  AccessLog log_{AccessLines::all, [this](const format::LogRecord& record) {
                   lines_ += format::log_line(format::LogForm::logfmt, 0, record);
                 }};
  std::optional<Gateway> gateway_;
  OnThread on_;
  std::optional<relay::Relay> relay_;
  OnThread relay_on_;
};

}  // namespace berth::gateway
