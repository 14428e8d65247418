#include "gateway/gateway_process.hpp"

#include <algorithm>
#include <atomic>
#include <boost/json.hpp>
#include <csignal>
#include <cstdint>
#include <future>
#include <map>
#include <set>
#include <thread>

#include "fleet_format/fleet_json.hpp"
#include "format/answer_error.hpp"
#include "gateway/gateway.hpp"
#include "gateway/report_sender.hpp"
#include "http/connection_limits.hpp"
#include "http/listening.hpp"
#include "http/request_checks.hpp"
#include "http/secret.hpp"

namespace berth::gateway {

namespace json = boost::json;
using format::LogLevel;

namespace {

constexpr std::uint64_t poll_wait_s = 20;
constexpr std::chrono::milliseconds renew_again{60'000};
// How often to log how old the gateway's view is while the server cannot be reached.
constexpr std::chrono::milliseconds repeat_after{600'000};
constexpr std::chrono::milliseconds pause_min{100}, pause_max{2'000}, drain_time{60'000};
// Time for streams to end after another gateway has taken over.
constexpr std::chrono::milliseconds last_streams_time{3'600'000};
// How long a client of a kept connection has to send its next request: the usual keep-alive time, or only a moment if
// no other gateway takes over.
constexpr std::chrono::milliseconds last_idle_time{60'000}, last_idle_time_stopped{1'000};
// How long a gateway that takes over waits for its first view from the server.
constexpr std::chrono::milliseconds first_view_time{20'000};
constexpr std::chrono::seconds answer_time{2};
constexpr std::chrono::milliseconds look_every{20};
// Open files other than connections of clients and relays.
constexpr std::size_t own_files = 64;

http::Limits limits_of(const ClientLimits& asked) {
  http::Limits limits;
  limits.header_time = asked.header_time;
  const std::size_t files = std::clamp<std::size_t>(http::allow_open_files(SIZE_MAX), 256, 200'000);
  return http::limits_within(files - own_files, asked.connections, limits);
}

// Who accepts connections at the gateway's address: another gateway, this one, or no longer this one.
enum class Place : std::uint8_t { of_another, taken, left };

// Receives the server's views on a separate thread: if the server is slow or gone, the gateway continues with its
// last view.
class ServerFeed {
 public:
  ServerFeed(const GatewayProcessOptions& options, http::ListenAddress listening, const std::atomic<Place>& place,
             std::function<void(fleet::GatewayView)> take)
      : options_(options),
        listening_(std::move(listening)),
        place_(place),
        take_(std::move(take)),
        thread_([this](const std::stop_token& stop) { run(stop); }) {}

 private:
  void log_connection(const std::string& problem) {
    const TimePoint now = real_clock().now();
    if (problem.empty()) connected_at_ = now;
    if (problem == problem_ && (problem.empty() || now - last_logged_at_ < repeat_after)) return;
    problem_ = problem;
    last_logged_at_ = now;
    if (problem.empty()) return options_.log({LogLevel::info, "the gateway is connected to its server again"});
    format::LogFields more{{"reason", problem}};
    if (connected_at_)
      more.emplace_back("snapshot_age_s", std::to_string((now - *connected_at_) / std::chrono::seconds(1)));
    options_.log(
        {LogLevel::warning, "the gateway cannot reach its server and continues with its last known state", more});
  }

  void run(const std::stop_token& stop) {
    std::chrono::milliseconds pause = pause_min;
    while (!stop.stop_requested()) {
      const Result<void> ended = follow(stop, pause);
      if (stop.stop_requested()) return;
      log_connection(ended ? "" : ended.error().to_text());
      for (const Deadline deadline = Deadline::after(real_clock(), pause);
           !deadline.passed(real_clock().now()) && !stop.stop_requested();)
        real_clock().sleep_for(std::chrono::milliseconds(20));
      pause = std::min(pause_max, 2 * pause);
    }
  }

  static Result<std::string> body_of(const Result<http::Response>& answer) {
    if (!answer) return answer.error();
    if (answer->status == 200) return answer->body;
    const auto error = format::answer_error(answer->body);
    return Error{ErrorCode::unavailable, error ? error->message : "status " + std::to_string(answer->status),
                 answer->status == 401 ? "join again with a token from berth token add join --gateway" : ""};
  }

  Result<void> report_address(http::Client& client, const std::stop_token& stop) const {
    json::object here{{"port", listening_.port}};
    if (listening_.host != "0.0.0.0" && listening_.host != "::") here["host"] = listening_.host;
    BERTH_TRY(body_of(client.request(
        "PUT", "/api/v1/gateway/address", format::document(here),
        {.headers = {{"content-type", "application/json"}}, .timeout = std::chrono::seconds(10), .stop = stop})));
    return {};
  }

  // Returns false if there is nothing to renew yet. After an error, renewal is tried again later.
  Result<bool> renew(http::Client& client, const http::ClientOptions& server) {
    if (!options_.renew || real_clock().now() < renews_at_) return false;
    const Result<bool> renewed = options_.renew(client, server);
    if (!renewed) renews_at_ = real_clock().now() + renew_again;
    return renewed;
  }

  template <class Value>
  void note_refused(const char* what, const Result<Value>& result) const {
    if (!result) options_.log({LogLevel::warning, what, {{"reason", result.error().to_text()}}});
  }

  // Receives views until an error occurs or the certificate has been renewed.
  Result<void> follow(const std::stop_token& stop, std::chrono::milliseconds& pause) {
    const http::ClientOptions server = BERTH_TRY(options_.server());
    // Another credential may belong to another server, which has its own epochs.
    if (std::exchange(token_, server.token) != server.token) epoch_seen_ = 0;
    http::Client client = BERTH_TRY(http::Client::create(server));
    std::uint64_t epoch = 0, number = 0;
    bool is_address_reported = false;
    while (true) {
      const Place place = place_;
      // Another gateway may have the same name, so only the one that accepts connections reports its address.
      Result<void> address_reported = {};
      if (place == Place::taken && !is_address_reported) {
        address_reported = report_address(client, stop);
        is_address_reported = address_reported.has_value();
      }
      if (place == Place::of_another && epoch != 0) real_clock().sleep_for(look_every);
      const Result<bool> renewed = renew(client, server);
      if (renewed && *renewed) return {};  // use it from now on
      const std::string body = BERTH_TRY(body_of(client.request(
          "GET",
          "/api/v1/gateway/endpoints?epoch=" + std::to_string(epoch) + "&revision=" + std::to_string(number) +
              "&wait_s=" + std::to_string(place == Place::of_another ? 0 : poll_wait_s),
          {}, {.timeout = std::chrono::seconds(poll_wait_s + 5), .stop = stop})));
      fleet::GatewayView view = BERTH_TRY(format::read_document(body, "the endpoints", format::gateway_view_of));
      log_connection("");
      // These refusals are only logged: without new views, revoked keys would stay in use.
      note_refused("the server refused the address of the gateway", address_reported);
      note_refused("the gateway cannot renew its certificate", renewed);
      pause = pause_min;
      // A server that was replaced may still answer.
      if (view.epoch < epoch_seen_)
        return Error{ErrorCode::unavailable,
                     "the server's epoch is lower than that of a server that this gateway was connected to"};
      epoch_seen_ = view.epoch;
      const bool is_new = view.epoch != epoch || view.number != number;
      epoch = view.epoch;
      number = view.number;
      if (is_new) take_(std::move(view));
    }
  }

  const GatewayProcessOptions& options_;
  const http::ListenAddress listening_;
  const std::atomic<Place>& place_;
  const std::function<void(fleet::GatewayView)> take_;
  std::string token_;
  std::uint64_t epoch_seen_ = 0;
  TimePoint renews_at_{}, last_logged_at_{};
  std::optional<TimePoint> connected_at_;  // when the server answered last
  std::string problem_;
  std::jthread thread_;
};

// The relays that may connect, by the credential they prove.
class RelayKeys {
 public:
  void set(const std::vector<fleet::RelayKey>& relays) {
    keys_.clear();
    for (const fleet::RelayKey& relay : relays) {
      http::Proof proof = http::proof_of(http::sha256(relay.key));
      const std::string credential = relay.node.text() + ' ' + proof.identity;
      keys_.emplace(std::move(proof.identity), http::KnownKey{credential, std::move(proof.key)});
    }
  }
  std::optional<http::KnownKey> find(std::string_view identity) const {
    const auto found = keys_.find(identity);
    return found == keys_.end() ? std::nullopt : std::optional(found->second);
  }
  std::set<std::string> credentials() const {
    std::set<std::string> all;
    for (const auto& [identity, key] : keys_) all.insert(key.credential);
    return all;
  }

 private:
  std::map<std::string, http::KnownKey, std::less<>> keys_;
};

}  // namespace

std::string lock_file(const std::string& folder) { return folder + "/lock"; }

Result<void> run_gateway(const GatewayProcessOptions& options,
                         const std::function<void(const std::vector<std::string>& urls)>& started) {
  std::signal(SIGPIPE, SIG_IGN);
  RelayKeys keys;
  std::optional<Gateway> gateway;
  http::ServerOptions server_options;
  server_options.serves_page = false;
  server_options.limits = limits_of(options.limits);
  server_options.takes_proofs_over_tls = true;
  server_options.key_of = [&](std::string_view identity) { return keys.find(identity); };
  server_options.on_accept_problem = [&](const std::string& problem) {
    options.log({LogLevel::warning, "the gateway cannot accept connections now; new ones wait", {{"reason", problem}}});
  };
  server_options.on_refused = [&](http::Response& answer) { gateway->note_refusal(answer); };
  http::Server server(std::move(server_options),
                      http::Server::Proxy([&](http::Link& client, http::Head& head, const http::Peer& peer) {
                        return gateway->handle(client, head, peer);
                      }));
  std::vector<http::ListenOn> listeners = options.listeners;
  std::vector<std::string> addresses;
  if (options.take_over) {
    options.take_over->give_to(listeners);
    for (const http::ListenOn& listener : listeners) {
      const http::ListenAddress address = BERTH_TRY(http::parse_listen_address(listener.address));
      addresses.push_back(listener.descriptor ? http::taken_listening(address, *listener.descriptor).address
                                              : listener.address);
    }
  } else {
    addresses = BERTH_TRY(server.listen_only(listeners));
  }
  GatewayOptions gateway_options;
  gateway_options.relay_of = [](const http::Head&, const http::Peer& peer) {
    const std::string& proven = peer.credential;  // the node and which of its keys
    return proven.empty() ? std::nullopt : std::optional(NodeId(proven.substr(0, proven.find(' '))));
  };
  gateway_options.client_time = options.limits.client_time;
  std::set<NodeId> of_other_protocol;  // whose protocol was logged
  gateway_options.on_other_protocol = [&](const NodeId& node, std::string_view protocol) {
    if (of_other_protocol.insert(node).second)
      options.log({LogLevel::warning, relay::protocol_problem("the relay of node " + node.text(), protocol)});
  };
  AccessLog access_log(options.access_lines, options.log);
  gateway_options.on_ended = [&](const fleet::RequestRecord& record) { access_log.ended(record, real_clock().now()); };
  gateway.emplace(server.loop(), std::move(gateway_options));
  const http::ListenAddress first = BERTH_TRY(http::parse_listen_address(addresses.front()));
  std::atomic<Place> place = options.take_over ? Place::of_another : Place::taken;
  std::optional<ServerFeed> feed;
  std::optional<ReportSender> sender;
  const auto report = [&](const ReportSender::Promised& promised) {
    server.post([&, promised] {
      fleet::GatewayReport made = gateway->report();
      made.connections = server.connections();
      made.relay_connections = gateway->relays();
      promised->set_value(std::move(made));
    });
  };
  std::unique_ptr<TakeOverOffer> offer;
  std::optional<Error> failure;
  bool is_waiting = options.take_over != nullptr;  // for the first view

  // The relays stay until the last request is answered. A client that has just connected is about to send a request.
  const std::function<void()> end_when_idle = [&] {
    if (gateway->calls() == 0 && server.connections() <= gateway->relays()) return gateway->end();
    server.after(std::chrono::milliseconds(20), end_when_idle);
  };
  const auto begin_end = [&](std::chrono::milliseconds time, std::chrono::milliseconds idle_time) {
    place = Place::left;
    is_waiting = false;
    gateway->leave();
    // The offer ends before the lock is released, so that the gateway that takes the lock can listen at once.
    if (offer) offer->end();
    static_cast<void>(server.listen_only({}));
    server.shutdown(time, idle_time);
    if (options.ending) options.ending();
    end_when_idle();
  };
  // Calls the function on the server's thread. Returns nothing if the thread has ended or is busy; the function is then
  // never called.
  const auto on_server = [&](auto function) {
    using Value = decltype(function());
    struct Asked {
      std::atomic<bool> is_settled = false;  // the function has been called, or never will be
      std::promise<Value> result;
    };
    const auto asked = std::make_shared<Asked>();
    auto answer = asked->result.get_future();
    server.post([asked, function] {
      if (!asked->is_settled.exchange(true)) asked->result.set_value(function());
    });
    const bool is_late = answer.wait_for(answer_time) != std::future_status::ready;
    return is_late && !asked->is_settled.exchange(true) ? std::optional<Value>() : std::optional<Value>(answer.get());
  };
  const auto serve = [&] {
    auto made = TakeOverOffer::make(
        options.folder,
        [&] { return on_server([&] { return server.listening(); }).value_or(std::map<std::string, int>()); },
        [&](const std::function<bool()>& is_there) {
          const auto give_up_place = [&, is_there] {
            if (place == Place::left || !is_there()) return false;
            options.log({LogLevel::info, "another gateway takes over; this one finishes its requests"});
            begin_end(last_streams_time, last_idle_time);
            return true;
          };
          return on_server(give_up_place).value_or(false);
        });
    if (made)
      offer = *std::move(made);
    else
      options.log({LogLevel::warning, "no other gateway can take over from this one: " + made.error().to_text()});
    std::vector<std::string> urls;
    for (std::size_t i = 0; i < addresses.size(); ++i)
      urls.push_back((options.listeners[i].tls ? "https://" : "http://") + addresses[i]);
    sender.emplace(options.server, report, options.log);
    started(urls);
  };
  const auto take_place = [&]() -> Result<void> {
    addresses = BERTH_TRY(server.listen_only(listeners));
    options.take_over->finish();
    if (options.taken_over) BERTH_TRY(options.taken_over());
    place = Place::taken;
    serve();
    return {};
  };
  const auto give_up = [&](Error error) {
    failure = std::move(error);
    static_cast<void>(server.listen_only({}));  // do not accept the other gateway's connections here
    server.shutdown(std::chrono::milliseconds(0));
    gateway->end();
  };
  std::vector<std::string> conflicts;  // those already logged
  const auto take = [&](fleet::GatewayView view) {
    server.post([&, view = std::move(view)] {
      keys.set(view.relays);
      gateway->keep_relays(keys.credentials());
      gateway->set(indexed(view));
      for (const std::string& conflict : gateway->routes().conflicts()) {
        if (std::find(conflicts.begin(), conflicts.end(), conflict) == conflicts.end())
          options.log({LogLevel::warning, conflict});
      }
      conflicts = gateway->routes().conflicts();
      if (!std::exchange(is_waiting, false)) return;
      if (auto taken = take_place(); !taken) give_up(taken.error());
    });
  };
  BERTH_TRY(server.on_signal({SIGINT, SIGTERM}, [&](int) { begin_end(drain_time, last_idle_time_stopped); }));
  // Certificate files are renewed in place.
  const auto read_again = [&] {
    if (place != Place::taken) return;  // the sockets belong to another gateway
    if (const auto again = server.listen_only(options.listeners); !again)
      options.log({LogLevel::error,
                   "the gateway cannot use its certificate and keeps the old one",
                   {{"reason", again.error().to_text()}}});
  };
  BERTH_TRY(server.on_signal({SIGHUP}, [&](int) { read_again(); }));
  const std::function<void()> read_regularly = [&] {
    read_again();
    server.after(std::chrono::hours(1), read_regularly);
  };
  server.after(std::chrono::hours(1), read_regularly);
  server.post([&] {
    if (!options.take_over) serve();
    feed.emplace(options, first, place, take);
  });
  if (options.take_over)
    server.after(first_view_time, [&] {
      if (is_waiting)
        give_up({ErrorCode::unavailable, "the server does not answer, so the running gateway continues",
                 "run berth status"});
    });
  server.run();
  if (sender) sender->finish(gateway->report());
  feed.reset();
  offer.reset();
  gateway.reset();
  if (failure) return *std::move(failure);
  return {};
}

}  // namespace berth::gateway
