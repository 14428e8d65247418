// `berth gateway`: one address for requests to the replicas of a fleet.
#include "gateway/gateway_process.hpp"

#include <fstream>

#include "agent/identity.hpp"
#include "cli/options.hpp"
#include "cli/own_gateway.hpp"
#include "cli/server_access.hpp"
#include "cli/verbs/agent.hpp"
#include "deployment/identifiers.hpp"
#include "http/listening.hpp"
#include "http/request_checks.hpp"
#include "machine/this_node.hpp"
#include "world/duration.hpp"
#include "world/files.hpp"
#include "world/process_lock.hpp"
#include "world/ready_notice.hpp"
#include "world/runtime_folder.hpp"

namespace berth::cli {

using namespace format;
using namespace world;
namespace {

struct GatewayArguments {
  std::string url;
  std::optional<std::string> token_file;
  std::string ca_file, fingerprint;
  std::vector<std::string> listen;
  std::optional<std::string> certificate, key;
  AgentArguments agent;  // only the name and the log
  gateway::AccessLines access_lines = gateway::AccessLines::failed;
  gateway::ClientLimits limits;
};

Result<std::vector<http::ListenOn>> listeners_of(const GatewayArguments& arguments) {
  if (arguments.certificate.has_value() != arguments.key.has_value())
    return Error{ErrorCode::invalid_argument, "a certificate and its key must be given together",
                 "give both --tls-certificate and --tls-key, or neither"};
  std::vector<std::string> addresses = arguments.listen;
  if (addresses.empty()) addresses.emplace_back(gateway::default_address);
  std::vector<http::ListenOn> listeners;
  for (const std::string& address : addresses) {
    const http::ListenAddress parsed = BERTH_TRY(http::parse_listen_address(address));
    if (parsed.host.empty())
      return Error{ErrorCode::invalid_argument, "a gateway cannot listen on " + address, "give ADDRESS:PORT"};
    const bool is_local = http::is_loopback_name(parsed.host);
    if (!is_local && !arguments.certificate)
      return Error{ErrorCode::invalid_argument, "other machines can reach " + address + ", so it needs a certificate",
                   "give --tls-certificate and --tls-key, or listen on a loopback address such as 127.0.0.1:8081"};
    listeners.push_back({address, std::nullopt});
    if (arguments.certificate) listeners.back().tls = http::TlsFiles{*arguments.certificate, *arguments.key};
  }
  return listeners;
}

// Joins the fleet if the gateway has not joined it with this token yet.
Result<void> join_with(const GatewayArguments& arguments, const http::ClientOptions& server, const std::string& name,
                       const std::string& folder) {
  if (!arguments.token_file) return {};
  const Result<std::string> token = read_token_file(*arguments.token_file, "--token-file");
  const bool is_known = agent::known_server(server, folder).has_value();
  if (!token && is_known && token.error().code == ErrorCode::not_found) return {};
  if (!token) return token.error();
  if (is_known && agent::has_joined_with(folder, *token)) return {};
  agent::Joining joining{server, *arguments.token_file, NodeId(name), agent_version(), folder, true};
  joining.server.token = *token;
  return agent::join(joining);
}

// Records the command line, so that `berth serve` recognizes the gateway later.
Result<void> note_start(const std::string& folder) {
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  if (!words.empty()) words.erase(words.begin());
  return write_private_text(gateway_start_file(folder), gateway_start(words));
}

int run_gateway_verb(const GatewayArguments& arguments) {
  const ReadyNotice ready_notice;
  const std::string name = arguments.agent.name.value_or(machine::this_node().id.text());
  if (!deployment::is_name(name))
    return print_error({ErrorCode::invalid_argument, "\"" + name + "\" is not a valid name for a gateway",
                        "use letters, digits, '.', '_' and '-', starting with a letter or digit"});
  if (const auto takes = check_takes_token(arguments.url); !takes) return print_error(takes.error());
  const Result<std::vector<http::ListenOn>> listeners = listeners_of(arguments);
  if (!listeners) return print_error(listeners.error());
  const Result<std::string> state = state_folder("gateway");
  if (!state) return print_error(state.error());
  const Result<std::string> folder = private_folder(*state + "/" + name);
  if (!folder) return print_error(folder.error());
  std::string other;
  auto lock = ProcessLock::take(gateway::lock_file(*folder), "another gateway", other);
  if (!lock) return print_error(lock.error());
  std::optional<gateway::TakeOver> take_over;
  if (!*lock) {
    auto begun = gateway::TakeOver::begin(*folder);
    if (!begun)
      return print_error(
          {ErrorCode::already_exists,
           "a gateway with this name is already running on this machine: " + other + "; " + begun.error().message,
           "stop it first, or give this one another --name"});
    take_over.emplace(*std::move(begun));
  }
  const http::ClientOptions server{
      .url = arguments.url, .ca_file = arguments.ca_file, .fingerprint = arguments.fingerprint};
  if (const auto joined = join_with(arguments, server, name, *folder); !joined) return print_error(joined.error());
  gateway::GatewayProcessOptions options;
  options.server = [&] { return agent::known_server(server, *folder); };
  if (const auto known = options.server(); !known)
    return print_error({known.error().code, "this gateway has not joined yet",
                        "run berth token add join --gateway -o FILE on the server's machine, and give that file with "
                        "--token-file"});
  options.renew = [](http::Client& client, const http::ClientOptions& with) {
    return agent::renew_certificate(client, with, "/api/v1/gateway/certificate");
  };
  options.ending = [&] { lock->reset(); };
  options.listeners = *listeners;
  options.folder = *folder;
  if (take_over) options.take_over = &*take_over;
  options.taken_over = [&]() -> Result<void> {
    *lock = BERTH_TRY(ProcessLock::take(gateway::lock_file(*folder), "another gateway", other));
    if (!*lock)
      return Error{ErrorCode::unavailable, "the running gateway did not hand over and continues: " + other,
                   "try again"};
    return {};
  };
  options.access_lines = arguments.access_lines;
  options.limits = arguments.limits;
  options.log = log_to_stderr(arguments.agent, {{"component", "gateway"}});
  const Result<void> ran = gateway::run_gateway(options, [&](const std::vector<std::string>& urls) {
    if (const auto noted = note_start(*folder); !noted) options.log({LogLevel::warning, noted.error().to_text()});
    for (const std::string& url : urls) options.log({LogLevel::info, "the gateway takes requests at " + url});
    ready_notice.send();
  });
  return ran ? done : print_error(ran.error());
}

}  // namespace

void add_gateway(const Verb& command) {
  const auto arguments = std::make_shared<GatewayArguments>();
  Verb verb = command.add("gateway", "accept requests at one address and forward them to the replicas of a fleet");
  verb.option("--join", "URL", &arguments->url, "address of the server, such as https://head:8443", {.required = true});
  verb.option("--token-file", "FILE", &arguments->token_file,
              "file with the token from berth token add join --gateway; needed only for the first connection");
  verb.option("--listen", "ADDRESS", &arguments->listen,
              "ADDRESS:PORT to listen on (127.0.0.1:8081); may be repeated. Relays connect to the first one");
  verb.option("--tls-certificate", "FILE", &arguments->certificate,
              "PEM file with the certificate; required for an address that other machines can reach");
  verb.option("--tls-key", "FILE", &arguments->key, "PEM file with the private key of this certificate");
  verb.option("--ca", "FILE", &arguments->ca_file,
              "CA certificates to trust, if your own authority signed the server's certificate");
  verb.option("--fingerprint", "SHA256", &arguments->fingerprint,
              "accept only the certificate with this fingerprint, or certificates signed by the authority with this "
              "fingerprint");
  verb.option("--name", "NAME", &arguments->agent.name, "name of this gateway; by default the name of the machine");
  add_log_option(verb, arguments->agent);
  const auto take_lines = [arguments](const std::string& name) -> Result<void> {
    arguments->access_lines = BERTH_TRY(gateway::access_lines_named(name));
    return {};
  };
  verb.option("--access-log", "WHICH", take_lines,
              "which requests to log: all, none, or failed (at most 20 per second; the default)");
  verb.option("--connections", "N", &arguments->limits.connections.all,
              "maximum number of connections, including relays; by default as many as the limit on open files allows",
              {.range = {{16, 1'000'000}}});
  verb.option("--connections-per-address", "N", &arguments->limits.connections.of_address,
              "maximum number of connections from any one other machine; by default half of --connections",
              {.range = {{1, 1'000'000}}});
  const auto take_time = [](std::chrono::milliseconds& into) {
    return [&into](const std::string& text) -> Result<void> {
      const Duration time = BERTH_TRY(parse_duration(text));
      if (time < std::chrono::seconds(1) || time > std::chrono::hours(24))
        return Error{ErrorCode::invalid_argument, "\"" + text + "\" is out of range", "use 1s to 24h"};
      into = std::chrono::duration_cast<std::chrono::milliseconds>(time);
      return {};
    };
  };
  verb.option("--header-timeout", "TIME", take_time(arguments->limits.header_time),
              "close a connection that takes longer to send the header of a request (10s)");
  verb.option("--client-timeout", "TIME", take_time(arguments->limits.client_time),
              "end a request if its client pauses longer than this while it sends a body or receives the answer (20s)");
  verb.footer(
      {"berth serve starts a gateway by itself. A gateway that is stopped accepts no new connections and finishes its "
       "requests. If a gateway with this name is already running, the new one takes over without a pause."});
  verb.run([arguments] { return run_gateway_verb(*arguments); });
}

}  // namespace berth::cli
