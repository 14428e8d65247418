#include "relay/relay_process.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "http/client.hpp"
#include "http/server.hpp"
#include "relay/control.hpp"
#include "relay/relay.hpp"
#include "world/process_lock.hpp"

namespace berth::relay {
namespace {

using http::Async;

constexpr std::chrono::milliseconds leave_time{5'000};  // time for a running relay to hand over

// Runs entirely on the thread of its server.
class RelayProcess {
 public:
  explicit RelayProcess(const RelayProcessOptions& options)
      : options_(options),
        server_({}, [this](const http::Request& request, const http::Responder& to) { to.send(answer(request)); }) {}

  Result<void> run() {
    const std::string url = control_url(options_.folder);
    if (options_.replaces)
      if (Result<http::Client> before = http::Client::create({.url = url}))
        static_cast<void>(before->request("POST", leave_path, {}, {.timeout = leave_time}));
    std::string other;
    lock_ = BERTH_TRY(world::ProcessLock::take(lock_file(options_.folder), "another relay", other));
    if (!lock_)
      return Error{ErrorCode::already_exists, "a relay of this agent is already running: " + other, "end it first"};
    BERTH_TRY(server_.listen(url));
    socket_ = path_of(url);
    BERTH_TRY(server_.on_signal({SIGTERM, SIGINT}, [this](int) { end("it received a signal", options_.drain_max); }));
    if (::lstat(socket_.c_str(), &listening_) != 0)
      return Error{ErrorCode::io, "the relay's socket '" + socket_ + "' was removed immediately"};
    last_message_at_ = real_clock().now();
    RelayOptions of_relay = options_.relay;
    of_relay.node = options_.node;
    relay_.emplace(server_.loop(), std::move(of_relay));
    look();
    if (options_.on_ready) options_.on_ready();
    log("the relay is starting");
    server_.run();
    if (!replaced_name_.empty())
      for (const std::string& file : {socket_, lock_file(options_.folder, replaced_name_)}) ::unlink(file.c_str());
    log("the relay has ended", {{"reason", reason_}});
    return {};
  }

 private:
  void log(std::string message, format::LogFields fields = {}, format::LogLevel level = format::LogLevel::info) const {
    if (options_.log) options_.log({level, std::move(message), std::move(fields)});
  }

  static std::string path_of(const std::string& url) { return url.substr(url.find(':') + 1); }

  http::Response answer(const http::Request& request) {
    if (request.path == end_path && request.method == "POST") {
      const bool is_replaced = !replaced_name_.empty();
      if (!ending_) end("its agent requested it", is_replaced ? options_.replaced_drain_max : options_.drain_max);
      return http::json_response(202, answer_text());
    }
    if (request.path == leave_path && request.method == "POST") return leave();
    if (request.path != targets_path || request.method != "PUT")
      return http::error_response(404, "not_found", "a relay accepts PUT /targets, POST /leave and POST /end");
    if (ending_) return http::error_response(503, "unavailable", "the relay is ending", "start another one");
    Result<Control> control = read_control(request.body);
    if (!control) return http::error_response(400, "invalid_argument", control.error().message, control.error().advice);
    last_message_at_ = real_clock().now();
    targets_ = control->targets;
    relay_->set_targets(std::move(control->targets));
    std::vector<http::ClientOptions> gateways;
    for (GatewayAddress& gateway : control->gateways)
      gateways.push_back({.url = std::move(gateway.url), .token = std::move(gateway.key)});
    relay_->set_gateways(gateways);
    return http::json_response(200, answer_text());
  }

  std::string answer_text() const {
    return to_text(ControlAnswer{relay_->admission().in_flight(), options_.version, relay_->problem()});
  }

  // Renames its socket and its lock, so that another relay can use their names. Requests are still accepted; the
  // agent ends this relay when the other one is running.
  http::Response leave() {
    if (!replaced_name_.empty()) return http::error_response(409, "conflict", "the relay has already handed over");
    const std::string name = name_of_replaced(::getpid());
    const std::string socket = path_of(control_url(options_.folder, name));
    if (::rename(socket_.c_str(), socket.c_str()) != 0 ||
        ::rename(lock_file(options_.folder).c_str(), lock_file(options_.folder, name).c_str()) != 0)
      return http::error_response(500, "io", std::string("the relay cannot hand over: ") + std::strerror(errno));
    socket_ = socket;
    replaced_name_ = name;
    log("another relay takes over; this one finishes its requests");
    return http::json_response(200, answer_text());
  }

  // A target whose job was removed does not count, whether or not an agent reports it. If this process may not look,
  // all jobs are assumed to exist.
  bool has_targets() const {
    return std::any_of(targets_.begin(), targets_.end(), [](const Target& target) {
      struct stat folder{};
      return target.job.empty() || ::stat(target.job.c_str(), &folder) == 0 || errno == EACCES;
    });
  }

  void look() {
    struct stat now{};
    if (::lstat(socket_.c_str(), &now) != 0 || now.st_ino != listening_.st_ino || now.st_dev != listening_.st_dev)
      return end("its socket was removed", options_.drain_max);
    if (real_clock().now() - last_message_at_ >= options_.silence_max && !has_targets())
      return end("it has no targets, and no agent has contacted it for a long time", options_.drain_max);
    if (const std::string problem = relay_->problem(); problem_ != problem) {
      problem_ = problem;
      if (!problem.empty()) log(problem, {}, format::LogLevel::warning);
    }
    server_.after(options_.look_every, [this] {
      if (!ending_) look();
    });
  }

  // A second call can only shorten the time.
  void end(const std::string& reason, std::chrono::milliseconds drain_max) {
    server_.after(drain_max, [this] { server_.shutdown(std::chrono::milliseconds(0)); });
    if (ending_) return;
    reason_ = reason;
    log("the relay ends after the requests in flight", {{"reason", reason_}});
    ending_.emplace(drain());
  }
  Async<void> drain() {
    co_await relay_->drain();
    server_.shutdown(std::chrono::milliseconds(1'000));
  }

  const RelayProcessOptions& options_;
  http::Server server_;
  std::optional<Relay> relay_;
  std::optional<http::Running> ending_;
  std::optional<world::ProcessLock> lock_;
  std::string socket_, reason_, problem_;
  std::string replaced_name_;  // empty: no other relay has replaced it
  struct stat listening_{};    // the socket's file
  std::vector<Target> targets_;
  TimePoint last_message_at_{};
};

}  // namespace

Result<void> run_relay_process(const RelayProcessOptions& options) {
  std::signal(SIGPIPE, SIG_IGN);
  return RelayProcess(options).run();
}

}  // namespace berth::relay
