// `berth serve`: runs the server of a fleet, with the agent of its own machine.

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "agent/agent.hpp"
#include "agent/folder_lock.hpp"
#include "agent/last_epoch.hpp"
#include "cli/command_line.hpp"
#include "cli/options.hpp"
#include "cli/own_gateway.hpp"
#include "cli/server_store.hpp"
#include "cli/text/terminal.hpp"
#include "cli/verbs/agent.hpp"
#include "gateway/gateway_process.hpp"
#include "http/listening.hpp"
#include "http/request_checks.hpp"
#include "machine/this_node.hpp"
#include "page/page.hpp"
#include "server/server_file.hpp"
#include "store/engine.hpp"
#include "world/files.hpp"
#include "world/ready_notice.hpp"
#include "world/runtime_folder.hpp"

namespace berth::cli {

using namespace format;
using namespace machine;
using namespace world;
namespace {

constexpr const char* no_gateway = "none";

struct ServeArguments {
  std::optional<std::string> config;
  std::optional<std::string> store;
  std::vector<std::string> listen;
  std::optional<std::string> certificate, key;
  std::vector<std::string> names;
  bool create = false, no_agent = false;
  std::optional<std::string> gateway, access_log;
  AgentArguments agent;
};

// Reads the settings from the file, or from the options, which correspond to the file's keys.
Result<server::ServerFile> read_settings(const ServeArguments& arguments) {
  if (arguments.config && (arguments.store || !arguments.listen.empty() || arguments.certificate || arguments.key ||
                           !arguments.names.empty() || arguments.gateway || arguments.access_log))
    return Error{ErrorCode::invalid_argument,
                 "--config cannot be used with --store, --listen, --gateway, --access-log, --tls-certificate, "
                 "--tls-key and --host-name",
                 "write them into " + *arguments.config};
  if (arguments.config) return server::read_server_file(BERTH_TRY(read_text(*arguments.config)), *arguments.config);
  if (arguments.certificate.has_value() != arguments.key.has_value())
    return Error{ErrorCode::invalid_argument, "a certificate and its key must be given together",
                 "give both --tls-certificate and --tls-key"};
  std::optional<http::TlsFiles> tls;
  if (arguments.certificate) tls = http::TlsFiles{*arguments.certificate, *arguments.key};
  server::ServerFile settings{arguments.store, arguments.gateway, {{}, arguments.names}, arguments.access_log};
  for (const std::string& address : arguments.listen) {
    BERTH_TRY(http::parse_listen_address(address));
    settings.endpoints.listeners.push_back({address, tls});
  }
  if (arguments.listen.empty()) settings.endpoints.listeners.push_back({server::default_address, tls});
  return settings;
}

// Starts the gateway, or continues one that an earlier server started.
Result<void> start_gateway(const server::ServerFile& settings, const ServeArguments& arguments,
                           const server::ServerReady& serving, const server::ServeOptions& options,
                           std::optional<OwnGateway>& gateway) {
  const std::string address = settings.gateway.value_or(gateway::default_address);
  const std::string folder = BERTH_TRY(private_folder(BERTH_TRY(state_folder("gateway")) + "/" + options.name));
  BERTH_TRY(serving.add_own_gateway(options.name, folder));
  std::vector<std::string> words{"gateway", "--join", serving.socket, "--name", options.name, "--listen", address};
  if (serving.tls && !http::is_loopback_name(BERTH_TRY(http::parse_listen_address(address)).host)) {
    for (const std::string& word : {std::string("--tls-certificate"), serving.tls->certificate_file,
                                    std::string("--tls-key"), serving.tls->key_file})
      words.push_back(word);
  }
  if (arguments.agent.log) {
    words.emplace_back("--log");
    words.emplace_back(*arguments.agent.log == LogForm::json ? "json" : "logfmt");
  }
  if (settings.access_log) {
    words.emplace_back("--access-log");
    words.push_back(*settings.access_log);
  }
  words.insert(words.end(), settings.gateway_limits.begin(), settings.gateway_limits.end());
  // Each message becomes an event of the fleet.
  gateway.emplace(folder, std::move(words),
                  [note = serving.note_gateway](const format::LogRecord& record) { note(record.message); });
  return {};
}

// Fails if other machines could reach a gateway without a certificate.
Result<void> check_gateway(const std::string& gateway, const server::ServerFile& settings) {
  if (settings.access_log) BERTH_TRY(gateway::access_lines_named(*settings.access_log));
  if (gateway == no_gateway) return {};
  const auto is_local = [](const std::string& address) {
    const auto parsed = http::parse_listen_address(address);
    return parsed && http::is_loopback_name(parsed->host);
  };
  BERTH_TRY(http::parse_listen_address(gateway));
  const auto& listeners = settings.endpoints.listeners;
  const bool has_tls = std::any_of(listeners.begin(), listeners.end(), [&](const http::ListenOn& listener) {
    return listener.tls.has_value() || !is_local(listener.address);
  });
  if (is_local(gateway) || has_tls) return {};
  return Error{ErrorCode::invalid_argument,
               "other machines can reach " + gateway + ", and the server has no certificate for it",
               "let the server listen there too (--listen 0.0.0.0:8443), or give --tls-certificate and --tls-key"};
}

int run_serve(const ServeArguments& arguments) {
  const ReadyNotice ready_notice;
  const Result<std::string> folder = state_folder("server");
  if (!folder) return print_error(folder.error());
  server::ServeOptions options;
  options.name = this_node().id.text();
  options.folder = *folder;
  const Result<server::ServerFile> settings = read_settings(arguments);
  if (!settings) return print_error(settings.error());
  const std::string gateway_address = settings->gateway.value_or(gateway::default_address);
  if (const auto checked = check_gateway(gateway_address, *settings); !checked) return print_error(checked.error());
  const Result<std::string> store = settings->store ? *settings->store : default_store();
  if (!store) return print_error(store.error());
  if (settings->store && !arguments.create) {
    if (const auto there = check_store_exists(*store, "correct the path, or add --create to start with an empty store");
        !there)
      return print_error(there.error());
  }
  options.store = *store;
  options.endpoints = settings->endpoints;
  options.connections = settings->connections;
  options.read_again = [&]() -> Result<server::Endpoints> {
    server::ServerFile again = BERTH_TRY(read_settings(arguments));
    if (again.store != settings->store)
      return Error{ErrorCode::invalid_argument, "the store cannot change while the server runs", "restart the server"};
    return std::move(again.endpoints);
  };
  for (const page::PageFile& file : page::page_files())
    options.page.push_back(
        {std::string(file.path), std::string(file.content_type), file.bytes, file.gzipped, std::string(file.etag)});
  options.version = agent_version();
  options.log = log_to_stderr(arguments.agent, {{"component", "server"}});

  // Checked first, because another server that is running also holds the folder of the agent and the port.
  if (const auto checked = server::check_start(options); !checked) return print_error(checked.error());
  std::optional<agent::AgentOptions> own;
  std::optional<world::ProcessLock> lock;
  if (!arguments.no_agent) {
    Result<agent::AgentOptions> found = agent_options(arguments.agent);
    if (!found) return print_error(found.error());
    own = *std::move(found);
    if (const auto made = private_folder(own->folder); !made) return print_error(made.error());
    Result<world::ProcessLock> taken = agent::lock_folder(own->folder);
    if (!taken) return print_error(taken.error());
    lock.emplace(*std::move(taken));
  }
  std::optional<OwnGateway> gateway;
  std::jthread agent;
  options.stopping = [&] {
    agent.request_stop();
    gateway.reset();
  };
  std::optional<Error> agent_error;
  const Result<void> served = server::serve(options, [&](const server::ServerReady& serving) {
    for (const std::string& url : serving.urls) options.log({LogLevel::info, "the server serves " + url});
    options.log({LogLevel::info, "the page asks for a token: yours is in " + serving.token_file});
    ready_notice.send();
    if (gateway_address == no_gateway) {
      if (const auto left = state_folder("gateway")) end_gateway(*left + "/" + options.name);
    } else {
      if (const auto started = start_gateway(*settings, arguments, serving, options, gateway); !started) {
        agent_error = started.error();
        return serving.shutdown();
      }
    }
    if (!own) return;
    const Result<std::string> token = serving.add_own_node(own->node, own->folder + "/own_credential");
    if (!token) {
      agent_error = token.error();
      return serving.shutdown();
    }
    agent::forget_epoch(own->folder);  // the agent contacts only this server, even if its store was replaced
    own->server.url = serving.socket;
    own->server.token = *token;
    agent = std::jthread([&, shutdown = serving.shutdown](const std::stop_token& stop) {
      if (const auto ran = agent::run_agent(*own, stop); !ran) {
        agent_error = ran.error();
        shutdown();
      }
    });
  });
  agent.request_stop();
  gateway.reset();
  if (agent.joinable()) agent.join();
  if (!served) return print_error(served.error());
  if (agent_error) return print_error(*agent_error);
  return done;
}

}  // namespace

void add_serve(const Verb& command) {
  const auto arguments = std::make_shared<ServeArguments>();
  Verb verb = command.add("serve", "run the server of a fleet: API, page, controller, and the agent of this machine");
  verb.option(
      "--config", "FILE", &arguments->config,
      "TOML file with the server's settings, instead of options (docs/operate/operations.md); reloaded on SIGHUP");
  verb.option("--store", "STORE", &arguments->store,
              "where to keep the state: memory, or sqlite:PATH; by default a file in this user's state folder");
  verb.flag("--create", arguments->create,
            "start with an empty store if the file that --store or --config names does not exist");
  verb.option("--listen", "ADDRESS", &arguments->listen, "ADDRESS:PORT to listen on (127.0.0.1:8080); may be repeated");
  verb.option(
      "--tls-certificate", "FILE", &arguments->certificate,
      "PEM file with the certificate; by default the server creates an authority for the fleet and signs its own");
  verb.option("--tls-key", "FILE", &arguments->key, "PEM file with the private key of this certificate");
  verb.option("--host-name", "NAME", &arguments->names, "additional host name of this server; may be repeated");
  verb.option("--gateway", "ADDRESS", &arguments->gateway,
              "ADDRESS:PORT at which a gateway accepts requests for replicas (127.0.0.1:8081), or none");
  verb.option("--access-log", "WHICH", &arguments->access_log,
              "which requests the gateway logs: all, none, or failed (at most 20 per second; the default)");
  verb.flag("--no-agent", arguments->no_agent, "do not run an agent on this machine");
  add_agent_options(verb, arguments->agent);
  verb.footer(
      {"Stops on Ctrl-C or SIGTERM; replicas keep running, and the next server finds them. SIGHUP reloads the file and "
       "the certificates without closing connections."});
  verb.run([arguments] { return run_serve(*arguments); });
}

}  // namespace berth::cli
