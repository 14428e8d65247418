// `berth agent`: makes this machine a node of a fleet.

#include "cli/verbs/agent.hpp"

#include <csignal>
#include <cstdio>
#include <stop_token>

#include "agent/folder_lock.hpp"
#include "agent/identity.hpp"
#include "agent/node_watch.hpp"
#include "agent/owner_rules.hpp"
#include "berth/version.hpp"
#include "cli/options.hpp"
#include "cli/server_access.hpp"
#include "deployment/identifiers.hpp"
#include "machine/supervise.hpp"
#include "machine/this_node.hpp"
#include "world/files.hpp"
#include "world/ready_notice.hpp"
#include "world/runtime_folder.hpp"
#include "world/wall_time.hpp"

namespace berth::cli {

using namespace format;
using namespace world;
namespace {

struct Arguments {
  std::string url;
  std::optional<std::string> token_file;
  std::string ca_file, fingerprint;
  AgentArguments agent;
};

// The server with the credential of the node; joins first if necessary.
Result<http::ClientOptions> joined_server(const Arguments& arguments, const agent::AgentOptions& options) {
  const Result<http::ClientOptions> known = agent::known_server(options.server, options.folder);
  if (!arguments.token_file) return known;
  const Result<std::string> token = read_token_file(*arguments.token_file, "--token-file");
  if (!token && known && token.error().code == ErrorCode::not_found) return known;
  if (!token) return token.error();
  if (known && agent::has_joined_with(options.folder, *token)) return known;
  // A token is valid for one join, so check first for everything that could keep the agent from starting.
  BERTH_TRY(agent::job_folder(options.folder, options.file));
  BERTH_TRY(agent::NodeWatch::open(options.node, options.file, options.backends));
  agent::Joining joining{options.server, *arguments.token_file, options.node, options.version, options.folder};
  joining.server.token = *token;
  BERTH_TRY(agent::join(joining));
  return agent::known_server(options.server, options.folder);
}

int run_agent_verb(const Arguments& arguments) {
  const ReadyNotice ready_notice;
  Result<agent::AgentOptions> options = agent_options(arguments.agent);
  if (!options) return print_error(options.error());
  if (const auto takes = check_takes_token(arguments.url); !takes) return print_error(takes.error());
  options->server.url = arguments.url;
  options->server.ca_file = arguments.ca_file;
  options->server.fingerprint = arguments.fingerprint;
  machine::StopRequests requests;
  if (const auto folder = private_folder(options->folder); !folder) return print_error(folder.error());
  // Taken before joining: a second agent must not replace the credential of the first.
  const Result<world::ProcessLock> lock = agent::lock_folder(options->folder);
  if (!lock) return print_error(lock.error());
  Result<http::ClientOptions> server = joined_server(arguments, *options);
  if (!server) return print_error(server.error());
  options->server = *std::move(server);
  std::stop_source stop;
  std::jthread watcher([&](const std::stop_token& ends) {
    while (!ends.stop_requested() && !requests.requested()) real_clock().sleep_for(std::chrono::milliseconds(50));
    stop.request_stop();
  });
  ready_notice.send();
  const Result<void> ran = agent::run_agent(*options, stop.get_token());
  watcher.request_stop();
  return ran ? done : print_error(ran.error());
}

}  // namespace

std::string agent_version() {
  return std::to_string(BERTH_VERSION_MAJOR) + "." + std::to_string(BERTH_VERSION_MINOR) + "." +
         std::to_string(BERTH_VERSION_PATCH);
}

Log log_to_stderr(const AgentArguments& arguments, const LogFields& common) {
  const LogForm own = !stderr_is_terminal()   ? LogForm::logfmt
                      : stderr_style().colour ? LogForm::coloured_terminal
                                              : LogForm::terminal;
  return [form = arguments.log.value_or(own), common](LogRecord record) {
    record.fields.insert(record.fields.end(), common.begin(), common.end());
    // In one write, so that lines of several threads do not mix.
    std::fputs(log_line(form, wall_time_us(), record).c_str(), stderr);
  };
}

void add_agent_options(Verb& verb, AgentArguments& arguments) {
  verb.option("--name", "NAME", &arguments.name, "name of this node; by default the name of the machine");
  verb.option("--agent-file", "FILE", &arguments.file,
              "TOML file that limits what the fleet may do on this machine: devices, users, commands, secrets, labels");
  add_backend_options(verb, arguments.backends);
  add_log_option(verb, arguments);
}

void add_log_option(Verb& verb, AgentArguments& arguments) {
  const auto take_form = [&arguments](const std::string& form) -> Result<void> {
    if (form != "logfmt" && form != "json")
      return Error{ErrorCode::invalid_argument, "\"" + form + "\" is not a known log format", "use logfmt or json"};
    arguments.log = form == "json" ? LogForm::json : LogForm::logfmt;
    return {};
  };
  verb.option("--log", "FORM", take_form,
              "log format on standard error: logfmt or json; by default logfmt, or readable lines on a terminal");
}

Result<agent::AgentOptions> agent_options(const AgentArguments& arguments) {
  agent::AgentOptions options;
  options.node = arguments.name ? NodeId(*arguments.name) : machine::this_node().id;
  if (!deployment::is_name(options.node.text()))
    return Error{ErrorCode::invalid_argument, "\"" + options.node.text() + "\" is not a valid node name",
                 "use letters, digits, '.', '_' and '-', starting with a letter or digit"};
  options.folder = BERTH_TRY(state_folder("agent")) + "/" + options.node.text();
  if (arguments.file) {
    const std::string text = BERTH_TRY(read_text(*arguments.file));
    options.file = BERTH_TRY(agent::read_agent_file(text, *arguments.file));
  }
  options.backends = arguments.backends;
  options.version = agent_version();
  options.log = log_to_stderr(arguments, {{"component", "agent"}, {"actor", "node:" + options.node.text()}});
  return options;
}

void add_agent(const Verb& command) {
  const auto arguments = std::make_shared<Arguments>();
  Verb verb = command.add("agent", "make this machine a node of a fleet");
  verb.option("--join", "URL", &arguments->url, "address of the server, such as https://head:8443", {.required = true});
  verb.option("--token-file", "FILE", &arguments->token_file,
              "file with the token from berth token add join; needed only for the first connection. The token "
              "carries the fingerprint that identifies the server");
  verb.option("--ca", "FILE", &arguments->ca_file,
              "CA certificates to trust, if your own authority signed the server's certificate");
  verb.option("--fingerprint", "SHA256", &arguments->fingerprint,
              "accept only the certificate with this fingerprint, or certificates signed by the authority with this "
              "fingerprint");
  add_agent_options(verb, arguments->agent);
  verb.footer(
      {"Reports this machine to the server and runs the replicas that the server assigns to it. If the agent stops or "
       "is killed, its replicas keep running, and the agent finds them after a restart."});
  verb.run([arguments] { return run_agent_verb(*arguments); });
}

}  // namespace berth::cli
