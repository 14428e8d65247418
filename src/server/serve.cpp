#include "server/serve.hpp"

#include <unistd.h>

#include <csignal>
#include <memory>
#include <mutex>
#include <set>

#include "http/listening.hpp"
#include "http/request_checks.hpp"
#include "http/secret.hpp"
#include "server/api.hpp"
#include "world/files.hpp"
#include "world/runtime_folder.hpp"
#include "world/user_name.hpp"
#include "world/wall_time.hpp"

namespace berth::server {

using fleet::EventKind;
using format::LogLevel;

namespace {

constexpr std::chrono::milliseconds tick_every{1'000}, step_soon{20}, shutdown_time{3'000};

// Open files other than connections over TCP: those over Unix sockets, the store, and the agent of this machine.
constexpr std::size_t own_files = 320, files_min = 384;

// The soft limit on open files is raised only if the configuration needs it, because replicas of this machine's agent
// inherit it.
http::Limits limits_of(const http::ConnectionLimits& asked) {
  const std::size_t files = http::allow_open_files(asked.all == 0 ? 0 : asked.all + own_files);
  return http::limits_within(std::max(files, files_min) - own_files, asked, {});
}

bool is_loopback(const std::string& address) {
  const Result<http::ListenAddress> parsed = http::parse_listen_address(address);
  return parsed && http::is_loopback_name(parsed->host);
}

// Runs the controller's steps: soon after a change, at the time for which a step asks, and every second.
class Loop {
 public:
  Loop(http::Server& server, Leader& leader, format::Log log)
      : server_(server), leader_(leader), log_(std::move(log)) {}

  void wake() {
    if (is_due_) return;
    is_due_ = true;
    server_.after(step_soon, [this] {
      is_due_ = false;
      step();
    });
  }
  void tick() {
    if (const auto renewed = leader_.renew(); !renewed) {
      log_({LogLevel::error,
            "this server lost leadership and is shutting down",
            {{"reason", renewed.error().to_text()}}});
      return server_.shutdown(shutdown_time);
    }
    step();
    server_.after(tick_every, [this] { tick(); });
  }

 private:
  void step() {
    const auto again = leader_.step();
    log_problems();
    if (!again || !*again) return;
    const Duration left = **again - real_clock().now();
    // Otherwise the next tick is soon enough.
    if (left < tick_every)
      server_.after(std::max(step_soon, std::chrono::duration_cast<std::chrono::milliseconds>(left)),
                    [this] { wake(); });
  }

  void log_problems() {
    // Problems of nodes are already logged as events.
    std::map<std::string, std::string> warnings = leader_.warnings();
    for (const auto& [subject, text] : warnings) {
      if (!warnings_.contains(subject) && !subject.starts_with("node/"))
        log_({LogLevel::warning, text, {{"subject", subject}}});
    }
    warnings_ = std::move(warnings);
    if (leader_.problem() == problem_) return;
    problem_ = leader_.problem();
    if (problem_.empty())
      log_({LogLevel::info, "the store works again"});
    else
      log_({LogLevel::error, "the controller cannot commit its decisions", {{"reason", problem_}}});
  }

  http::Server& server_;
  Leader& leader_;
  format::Log log_;
  bool is_due_ = false;
  std::string problem_;
  std::map<std::string, std::string> warnings_;
};

// Every change is an event that names its author.
format::LogRecord log_record(const fleet::Event& event) {
  const auto has = [&](std::string_view words) { return event.text.find(words) != std::string::npos; };
  const bool is_problem = event.actor.starts_with("node:") && !event.text.ends_with(" no longer reports a problem");
  const bool is_bad = event.kind == EventKind::failed || event.kind == EventKind::refused ||
                      event.kind == EventKind::pending ||
                      (event.kind == EventKind::device && !event.text.ends_with(" is healthy")) ||
                      (event.kind == EventKind::node && (is_problem || has(" is suspect: ") || has(" is lost: ")));
  return {is_bad ? LogLevel::warning : LogLevel::info,
          event.text,
          {{"kind", std::string(to_string(event.kind))},
           {"subject", event.subject},
           {"actor", event.actor},
           {"event", std::to_string(event.id)}}};
}

// Where the server listens, with its certificates: those of its configuration, or of its own authority.
class Listening {
 public:
  Listening(http::Server& server, Signing& signing, std::string folder)
      : server_(server), signing_(signing), folder_(std::move(folder)) {}

  // Applies all endpoints, or none if one fails. Returns the URLs.
  Result<std::vector<std::string>> take_up(Endpoints endpoints) {
    signing_.lifetime = endpoints.certificate_lifetime;
    const std::size_t given = endpoints.names.size();
    if (std::string own = http::own_host_name(); !own.empty()) endpoints.names.push_back(std::move(own));
    bool signs_server = false, has_tls = false;
    for (const http::ListenOn& listener : endpoints.listeners) {
      has_tls = has_tls || listener.tls || !is_loopback(listener.address);
      signs_server = signs_server || (!listener.tls && !is_loopback(listener.address));
    }
    if (has_tls && !signing_.authority) signing_.authority.emplace(BERTH_TRY(http::Authority::open(folder_)));
    std::optional<http::TlsFiles> own;
    if (signs_server)
      own = BERTH_TRY(signing_.authority->make_server_certificate(all_names(endpoints), signing_.lifetime));
    std::vector<http::ListenOn> listeners = endpoints.listeners;
    for (http::ListenOn& listener : listeners) {
      if (!listener.tls && !is_loopback(listener.address)) listener.tls = own;
      if (listener.tls) listener.tls->client_authority_file = signing_.authority->certificate_file();
    }
    std::vector<std::string> urls = BERTH_TRY(server_.listen_only(listeners));
    tls_.reset();
    for (const http::ListenOn& listener : listeners)
      if (listener.tls) tls_ = listener.tls;
    for (std::size_t i = 0; i < urls.size(); ++i) urls[i].insert(0, listeners[i].tls ? "https://" : "http://");
    server_.set_names(endpoints.names);
    signing_.signs_server = signs_server;
    endpoints.names.resize(given);
    endpoints_ = std::move(endpoints);
    return urls;
  }

  // The TLS files of listeners that other machines can reach, if there are any.
  const std::optional<http::TlsFiles>& tls() const { return tls_; }

  // Renews the certificate of the server long before it expires; open connections are not affected.
  void renew_later(const format::Log& log) {
    const auto delay = std::min<std::chrono::milliseconds>(std::chrono::hours(1), signing_.lifetime / 3);
    server_.after(delay, [this, log] {
      if (signing_.signs_server && real_clock().now() >= renewed_ + signing_.lifetime / 3) {
        if (const auto renewed = take_up(endpoints_); !renewed)
          log({LogLevel::error, "the server cannot renew its certificate", {{"reason", renewed.error().to_text()}}});
        else
          renewed_ = real_clock().now();
      }
      renew_later(log);
    });
  }

 private:
  // The names by which clients may reach this server; an address for all interfaces stands for those of the machine.
  static std::vector<std::string> all_names(const Endpoints& endpoints) {
    std::set<std::string> names{"localhost", "127.0.0.1", "::1"};
    names.insert(endpoints.names.begin(), endpoints.names.end());
    for (const http::ListenOn& listener : endpoints.listeners) {
      const auto address = http::parse_listen_address(listener.address);
      if (!address || address->host.empty()) continue;
      if (address->host != "0.0.0.0" && address->host != "::") {
        names.insert(address->host);
        continue;
      }
      for (std::string& own : http::own_addresses()) names.insert(std::move(own));
    }
    return {names.begin(), names.end()};
  }

  http::Server& server_;
  Signing& signing_;
  const std::string folder_;
  Endpoints endpoints_;
  std::optional<http::TlsFiles> tls_;
  TimePoint renewed_ = real_clock().now();
};

}  // namespace

Result<void> check_start(const ServeOptions& options) {
  const std::shared_ptr<store::Engine> engine = BERTH_TRY(store::open_engine(options.store));
  BERTH_TRY(engine->hold(options.name, std::chrono::seconds(1)));
  engine->release(options.name);
  return {};
}

Result<void> serve(const ServeOptions& options, const std::function<void(const ServerReady&)>& started) {
  const std::string folder = BERTH_TRY(world::private_folder(options.folder));
  const std::string token = http::make_secret(), token_file = folder + "/token";
  std::shared_ptr<store::Engine> engine = BERTH_TRY(store::open_engine(options.store));
  std::shared_ptr<store::Store> store = BERTH_TRY(store::Store::open(std::move(engine)));

  // Requests arrive only during run(), when the API, which needs the leader, exists. The server listens before it
  // leads, because it must not lead if its port is in use.
  std::optional<Api> api;
  http::ServerOptions server_options;
  server_options.limits = limits_of(options.connections);
  server_options.body_bytes = [&](const http::Request& head) { return api->body_bytes(head); };
  server_options.key_of = [&](std::string_view identity) { return api->key_of(identity); };
  server_options.on_accept_problem = [&](const std::string& problem) {
    options.log({LogLevel::warning, "the server cannot accept connections now; new ones wait", {{"reason", problem}}});
  };
  const std::size_t connections_max = server_options.limits.connections + server_options.limits.connections_of_unix;
  http::Server server(std::move(server_options),
                      [&](http::Request request, http::Responder responder) { api->handle(request, responder); });
  ServerReady serving;
  serving.token_file = token_file;
  // Listens on this socket first, because its owner is the only server with this folder and its authority.
  serving.socket = BERTH_TRY(server.listen("unix:" + folder + "/socket"));
  Signing signing;
  Listening listening(server, signing, folder + "/authority");
  serving.urls = BERTH_TRY(listening.take_up(options.endpoints));
  Leader leader = BERTH_TRY(Leader::begin(store, options.name, real_clock(),
                                          [&](const fleet::Event& event) { options.log(log_record(event)); }));
  leader.set_node_addresses(options.endpoints.nodes);
  Loop loop(server, leader, options.log);
  const auto after = [&](std::chrono::milliseconds delay, std::function<void()> function) {
    server.after(delay, std::move(function));
  };
  api.emplace(options.version, Access(world::user_name(geteuid()), token, folder), http::StaticFiles(options.page),
              leader, signing,
              Api::Hooks{[&] { loop.wake(); }, after, [&] { return server.connections(); }, connections_max,
                         [&] { return store_space(options.store); }});

  BERTH_TRY(world::write_private_text(token_file, token + "\n"));
  BERTH_TRY(server.on_signal({SIGINT, SIGTERM}, [&](int) {
    options.log({LogLevel::info, "the server is shutting down"});
    if (options.stopping) options.stopping();
    api->end();
    server.shutdown(shutdown_time);
  }));
  BERTH_TRY(server.on_signal({SIGHUP}, [&](int) {
    const auto again = [&]() -> Result<std::vector<std::string>> {
      Endpoints endpoints = BERTH_TRY(options.read_again());
      std::vector<std::string> urls = BERTH_TRY(listening.take_up(endpoints));
      leader.set_node_addresses(endpoints.nodes);
      return urls;
    }();
    if (!again)
      return options.log({LogLevel::error,
                          "the server cannot use its new configuration and keeps the old one",
                          {{"reason", again.error().to_text()}}});
    options.log({LogLevel::info, "the server has reloaded its configuration"});
    for (const std::string& url : *again) options.log({LogLevel::info, "the server serves " + url});
  }));
  serving.shutdown = [&] { server.shutdown(shutdown_time); };
  // The token in this file, if it is that of the credential with this id.
  const auto known_token = [&](const std::string& file, const std::string& id) -> std::optional<std::string> {
    std::string token = world::read_text(file).value_or("");
    token.erase(token.find_last_not_of("\r\n") + 1);
    const auto found = leader.state().credentials.find(id);
    const bool is_known =
        found != leader.state().credentials.end() && http::is_same_text(found->second.sha256, http::sha256(token));
    return is_known ? std::optional(token) : std::nullopt;
  };
  serving.add_own_node = [&](const NodeId& node, const std::string& file) -> Result<std::string> {
    fleet::Credential credential;
    credential.id = "node-" + node.text();
    if (auto known = known_token(file, credential.id)) return *std::move(known);
    std::string own = http::make_secret();
    credential.role = fleet::Role::node;
    credential.sha256 = http::sha256(own);
    credential.node = node;
    credential.made_by = "server:" + options.name;
    credential.made_ms = world::wall_time_us() / 1000;
    BERTH_TRY(leader.add_node(node, credential, "", "server:" + options.name));
    BERTH_TRY(world::write_private_text(file, own + "\n"));
    return own;
  };
  serving.tls = listening.tls();
  serving.add_own_gateway = [&](const std::string& name, const std::string& gateway_folder) -> Result<void> {
    api->expect_gateway(name);
    const std::string file = gateway_folder + "/credential";
    fleet::Credential credential;
    credential.id = "gateway-" + name;
    if (known_token(file, credential.id)) return {};
    const std::string own = http::make_secret();
    credential.role = fleet::Role::gateway;
    credential.sha256 = http::sha256(own);
    credential.name = name;
    credential.made_by = "server:" + options.name;
    credential.made_ms = world::wall_time_ms();
    BERTH_TRY(leader.add_gateway(credential, "", "server:" + options.name));
    return world::write_private_text(file, own + "\n");
  };
  // The caller of note_gateway() may outlive the server.
  struct Notes {
    std::mutex mutex;
    bool has_ended = false;
  };
  const auto notes = std::make_shared<Notes>();
  serving.note_gateway = [&, notes](const std::string& text) {
    const std::lock_guard lock(notes->mutex);
    if (notes->has_ended) return;
    server.post([&, text] {
      const fleet::Event event{
          0, world::wall_time_ms(), EventKind::failed, "server:" + options.name, "gateway/" + options.name, text};
      if (!leader.note({event})) options.log(log_record(event));
    });
  };
  server.post([&] {
    started(serving);
    if (signing.authority)
      options.log({LogLevel::info, "the fingerprint of the fleet's authority is " + signing.authority->fingerprint()});
    api->tick();
    loop.tick();
    listening.renew_later(options.log);
  });
  server.run();
  {
    const std::lock_guard lock(notes->mutex);
    notes->has_ended = true;
  }
  api.reset();  // before the server, because it holds open answers
  leader.end();
  ::unlink(token_file.c_str());
  return {};
}

}  // namespace berth::server
