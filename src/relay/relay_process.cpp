#include "relay/relay_process.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <utility>

#include "http/server.hpp"
#include "relay/control.hpp"
#include "relay/relay.hpp"
#include "world/process_lock.hpp"

namespace berth::relay {
namespace {

using http::Async;

// All of it on the thread of its server.
class RelayProcess {
 public:
  explicit RelayProcess(const RelayProcessOptions& options)
      : options_(options),
        server_({}, [this](const http::Request& request, const http::Responder& to) { to.send(answer(request)); }) {}

  Result<void> run() {
    std::string other;
    const std::optional<world::ProcessLock> lock =
        BERTH_TRY(world::ProcessLock::take(options_.folder + "/relay.lock", "another relay", other));
    if (!lock) return Error{ErrorCode::already_exists, "a relay of this agent already runs: " + other, "end it first"};
    const std::string url = control_url(options_.folder);
    BERTH_TRY(server_.listen(url));
    socket_ = url.substr(url.find(':') + 1);
    BERTH_TRY(server_.on_signal({SIGTERM, SIGINT}, [this](int) { end("it was asked to by a signal"); }));
    if (::lstat(socket_.c_str(), &listening_) != 0)
      return Error{ErrorCode::io, "the relay's socket '" + socket_ + "' was removed at once"};
    heard_ = real_clock().now();
    RelayOptions of_relay = options_.relay;
    of_relay.node = options_.node;
    relay_.emplace(server_.loop(), std::move(of_relay));
    look();
    if (options_.on_ready) options_.on_ready();
    log("the relay starts");
    server_.run();
    log("the relay has ended", {{"reason", reason_}});
    return {};
  }

 private:
  void log(std::string message, format::LogFields fields = {}) const {
    if (options_.log) options_.log({format::LogLevel::info, std::move(message), std::move(fields)});
  }

  http::Response answer(const http::Request& request) {
    if (request.path == end_path && request.method == "POST") {
      server_.post([this] { end("its agent asked for it"); });
      return http::json_response(202, answer_text());
    }
    if (request.path != targets_path || request.method != "PUT")
      return http::error_response(404, "not_found", "a relay takes PUT /targets and POST /end");
    if (ending_) return http::error_response(503, "unavailable", "the relay is ending", "start another one");
    Result<Control> control = read_control(request.body);
    if (!control) return http::error_response(400, "invalid_argument", control.error().message, control.error().advice);
    heard_ = real_clock().now();
    targets_ = control->targets;
    relay_->set_targets(std::move(control->targets));
    std::vector<http::ClientOptions> gateways;
    for (GatewayAddress& gateway : control->gateways)
      gateways.push_back({.url = std::move(gateway.url), .token = std::move(gateway.key)});
    relay_->set_gateways(gateways);
    return http::json_response(200, answer_text());
  }

  std::string answer_text() const { return to_text(ControlAnswer{relay_->admission().in_flight(), options_.version}); }

  // A target whose job was removed is none, whether or not an agent is there to say so.
  bool has_targets() const {
    return std::any_of(targets_.begin(), targets_.end(), [](const Target& target) {
      struct stat folder{};
      return target.job.empty() || ::stat(target.job.c_str(), &folder) == 0;
    });
  }

  void look() {
    struct stat now{};
    if (::lstat(socket_.c_str(), &now) != 0 || now.st_ino != listening_.st_ino || now.st_dev != listening_.st_dev)
      return end("its socket was removed");
    if (real_clock().now() - heard_ >= options_.silence_max && !has_targets())
      return end("it has no targets, and no agent has told it anything for long");
    server_.after(options_.look_every, [this] {
      if (!ending_) look();
    });
  }

  void end(const std::string& reason) {
    if (ending_) return;
    reason_ = reason;
    log("the relay ends after the requests in flight", {{"reason", reason_}});
    ending_.emplace(drain());
    server_.after(options_.drain_max, [this] { server_.shutdown(std::chrono::milliseconds(0)); });
  }
  Async<void> drain() {
    co_await relay_->drain();
    server_.shutdown(std::chrono::milliseconds(1'000));
  }

  const RelayProcessOptions& options_;
  http::Server server_;
  std::optional<Relay> relay_;
  std::optional<http::Running> ending_;
  std::string socket_, reason_;
  struct stat listening_{};  // the socket's file
  std::vector<Target> targets_;
  TimePoint heard_{};
};

}  // namespace

Result<void> run_relay_process(const RelayProcessOptions& options) {
  std::signal(SIGPIPE, SIG_IGN);
  return RelayProcess(options).run();
}

}  // namespace berth::relay
