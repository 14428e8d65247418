#include "cli/server_access.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "cli/login_files.hpp"
#include "cli/text/screen.hpp"
#include "format/answer_error.hpp"
#include "format/json_reading.hpp"
#include "http/request_checks.hpp"
#include "http/secret.hpp"
#include "http/url.hpp"
#include "world/descriptor.hpp"
#include "world/duration.hpp"
#include "world/runtime_folder.hpp"

namespace berth::cli {

using namespace format;
using namespace world;
namespace {

namespace json = boost::json;

// Three times the server's keep-alive interval for event streams.
constexpr std::chrono::milliseconds silent_stream_max{45'000};

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

// Error codes for the API's error words. Words that are not listed give status 1.
ErrorCode code_named(std::string_view word) {
  if (word == "invalid_argument" || word == "too_large") return ErrorCode::invalid_argument;
  if (word == "newer_schema") return ErrorCode::not_supported;
  if (word == "not_found") return ErrorCode::not_found;
  if (word == "internal" || word == "wrong_method" || word == "wrong_type") return ErrorCode::internal;
  return ErrorCode::unavailable;
}

}  // namespace

// The file is opened only once, so that the content read is that of the checked file.
Result<std::string> read_token_file(const std::string& path, const std::string& named_by) {
  const auto wrong = [&](const std::string& what, const std::string& advice) {
    return Error{ErrorCode::invalid_argument, "the token file " + path + " " + what, advice};
  };
  const world::Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) {
    Error error = wrong(std::string("cannot be read: ") + std::strerror(errno), "correct " + named_by);
    if (errno == ENOENT) error.code = ErrorCode::not_found;
    return error;
  }
  struct stat about{};
  std::string token(4096, '\0');
  const bool known = fstat(file.get(), &about) == 0;
  const ssize_t got = known && S_ISREG(about.st_mode) ? read(file.get(), token.data(), token.size()) : -1;
  if (got < 0) return wrong("is not a regular file", "correct " + named_by);
  if ((about.st_mode & 077) != 0 || (about.st_uid != geteuid() && about.st_uid != 0))
    return wrong("is open to other users", "make it private: chmod 600 " + path);
  token.resize(static_cast<std::size_t>(got));
  token.erase(token.find_last_not_of(" \t\r\n") + 1);
  if (token.empty()) return wrong("is empty", "berth token add ROLE -o " + path + " writes a token into it");
  return token;
}

Result<void> check_takes_token(const std::string& url) {
  const http::Url to = BERTH_TRY(http::parse_url(url));
  if (to.kind != http::Url::Kind::http || http::is_loopback_name(to.host)) return {};
  return Error{ErrorCode::invalid_argument,
               "a token is not sent to " + url + ", because the connection is not encrypted", "use https://"};
}

void add_address_options(Verb& verb, ServerArguments& arguments) {
  verb.option(
      "--server", "URL", &arguments.server,
      "address of the fleet's server; by default BERTH_SERVER, or your own server on this machine. A token is read "
      "from the file that BERTH_TOKEN_FILE names; not needed after berth login");
  verb.option("--ca", "FILE", &arguments.ca_file,
              "certificates to trust, instead of those of BERTH_CA_FILE or of this machine");
}
void add_server_options(Verb& verb, ServerArguments& arguments) {
  add_address_options(verb, arguments);
  verb.flag("--json", arguments.json, "print the answer of the server, one JSON object");
}

Result<ServerAccess> ServerAccess::open(const ServerArguments& arguments) {
  http::ClientOptions options;
  options.url = arguments.server.empty() ? variable("BERTH_SERVER") : arguments.server;
  options.ca_file = arguments.ca_file.empty() ? variable("BERTH_CA_FILE") : arguments.ca_file;
  const bool is_own = options.url.empty();
  if (is_own) {
    // On a socket, the server identifies the caller by user id.
    options.url = "unix:" + BERTH_TRY(state_folder("server", IfMissing::accept)) + "/socket";
  } else if (const std::string file = variable("BERTH_TOKEN_FILE"); !file.empty()) {
    BERTH_TRY(check_takes_token(options.url));
    options.token = BERTH_TRY(read_token_file(file, "BERTH_TOKEN_FILE"));
    if (options.ca_file.empty()) options.fingerprint = http::parse_token(options.token).fingerprint;
  } else if (const auto login = find_login(options.url)) {
    options.certificate_file = login->certificate_file;
    if (options.ca_file.empty()) options.ca_file = login->authority_file;
  }
  const std::string certificate = options.certificate_file;
  ServerAccess access(BERTH_TRY(http::Client::create(std::move(options))), is_own);
  if (!certificate.empty()) renew_login(access.client_, certificate);
  return access;
}

Error ServerAccess::connection_error(const Error& error) const {
  if (error.code != ErrorCode::unavailable || !error.advice.empty()) return error;
  if (is_own_)
    return {error.code, "no berth server is running here", "start one with berth serve, or set BERTH_SERVER"};
  return {error.code, error.message, "check the address, and whether berth serve is running there"};
}

Result<http::Response> ServerAccess::request(const Call& call) {
  const bool has_body = call.method == "PUT" || call.method == "POST";
  const std::string body = has_body ? document(call.body) : std::string();
  const Result<http::Url> url = http::parse_url(client_.url());
  const bool is_here = url && (url->kind == http::Url::Kind::unix_socket || http::is_loopback_name(url->host));
  const bool waits = std::exchange(may_be_starting_, false) && is_here && call.timeout > start_wait;
  for (const Deadline deadline = Deadline::after(real_clock(), start_wait);;) {
    http::CallOptions options;
    options.timeout = call.timeout;
    Result<http::Response> response = client_.request(call.method, call.target, body, std::move(options));
    const bool is_refused =
        !response && response.error().code == ErrorCode::unavailable && response.error().advice.empty();
    if (!waits || !is_refused || deadline.passed(real_clock().now())) return response;
    real_clock().sleep_for(std::chrono::milliseconds(50));
  }
}

Result<Answer> ServerAccess::call(const Call& call) {
  Result<http::Response> response = request(call);
  if (!response) return connection_error(response.error());
  if (response->status != 200) return error_of_answer(response->status, response->body, client_.url());
  const Result<json::value> parsed = parse_json(response->body, "the answer of " + client_.url(), "");
  const json::object* const object = parsed ? parsed->if_object() : nullptr;
  if (object == nullptr || !object->contains("schema")) return error_of_answer(200, response->body, client_.url());
  try {
    check_schema(*object, "the answer");
  } catch (const JsonError&) {
    return Error{ErrorCode::not_supported, client_.url() + " runs a newer version of Berth",
                 "use the berth command of that version"};
  }
  if (!response->body.ends_with('\n')) response->body += '\n';
  return Answer{std::move(response->body), *object};
}

Result<void> ServerAccess::end_of_stream(const Result<http::Response>& response) const {
  if (!response && response.error().code == ErrorCode::timeout)
    return Error{ErrorCode::timeout, client_.url() + " has been silent for " + duration_text(silent_stream_max),
                 "check that it runs and can be reached"};
  if (!response) return connection_error(response.error());
  if (response->status != 200) return error_of_answer(response->status, response->body, client_.url());
  return {};
}

Result<void> ServerAccess::output(const std::string& target, bool follow, const OnOutput& on_output) {
  http::CallOptions options;
  options.timeout = follow ? std::chrono::milliseconds::zero() : silent_stream_max;
  return end_of_stream(client_.stream_bytes(target, on_output, std::move(options)));
}

Result<void> ServerAccess::events(std::uint64_t after, const OnEvent& on_event) {
  http::CallOptions options;
  options.headers = {{"last-event-id", std::to_string(after)}};
  options.timeout = silent_stream_max;
  const auto take = [&](const http::Event& event) {
    if (event.name != "event") return true;
    const Result<json::value> parsed = parse_json(event.data, "an event", "");
    const json::object* const object = parsed ? parsed->if_object() : nullptr;
    return object == nullptr || on_event(*object);
  };
  return end_of_stream(client_.stream_events("/api/v1/stream", take, std::move(options)));
}

Error error_of_answer(int status, std::string_view body, const std::string& server) {
  auto error = answer_error(body);
  if (!error)
    return {ErrorCode::unavailable, server + " is not a Berth server (status " + std::to_string(status) + ")",
            "check --server and BERTH_SERVER"};
  if (error->advice.empty() && error->code == "not_logged_in")
    error->advice = server.starts_with("https://") ? "log in with a token from berth token add: berth login " + server
                                                   : "set BERTH_TOKEN_FILE to a file with a token from berth token add";
  return {code_named(error->code), std::move(error->message), std::move(error->advice)};
}

int call_and_print(const ServerArguments& arguments, const Call& call, const AnswerText& text) {
  Result<ServerAccess> server = ServerAccess::open(arguments);
  if (!server) return print_error(server.error());
  const Result<Answer> answer = server->call(call);
  if (!answer) return print_error(answer.error());
  return print(arguments.json ? answer->text : text(answer->json, stdout_style()));
}

int watch_server(const ServerArguments& arguments, const Call& call, const AnswerText& text) {
  Result<ServerAccess> server = ServerAccess::open(arguments);
  if (!server) return print_error(server.error());
  Answer last;
  std::string away;
  const auto refresh = [&]() -> Result<void> {
    Result<Answer> answer = server->call(call);
    away = answer ? "" : "berth: " + printable(answer.error().to_text()) + "\n";
    if (answer)
      last = *std::move(answer);
    else if (last.text.empty())
      return std::move(answer).error();
    return {};
  };
  const auto shown = [&](const Style& style) { return arguments.json ? last.text : text(last.json, style); };
  return watch({refresh, shown, [&] { return away; }}, arguments.json);
}

void add_list_verb(const Verb& command, const ListVerb& list) {
  struct Arguments {
    ServerArguments server;
    std::string name;
    bool watch = false, has_view = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  Verb verb = command.add(list.name, list.help);
  if (!list.argument_help.empty()) {
    verb.argument("NAME", &arguments->name, list.argument_help, false);
    verb.offer("NAME", list.offered);
  }
  if (!list.view.flag.empty()) verb.flag(list.view.flag, arguments->has_view, list.view.help);
  verb.flag("--watch", arguments->watch, "refresh every second until q or Ctrl-C (exit status 0)");
  add_server_options(verb, arguments->server);
  verb.run([arguments, list] {
    std::string target = "/api/v1/" + list.name;
    if (!arguments->name.empty() && list.target) {
      const Result<std::string> named = list.target(arguments->name);
      if (!named) return print_error(named.error());
      target = *named;
    } else if (!arguments->name.empty()) {
      target += "/" + http::encoded(arguments->name);
    }
    const bool is_single = !arguments->name.empty() && target.find('?') == std::string::npos;
    return (arguments->watch ? watch_server : call_and_print)(arguments->server, {target},
                                                              arguments->has_view ? list.view.text
                                                              : is_single         ? list.single
                                                                                  : list.all);
  });
}

Result<ReplicaTarget> replica_target(const std::string& name) {
  const auto is_number = [](std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  const std::size_t slash = name.rfind('/'), hash = std::min(name.find('#', slash), name.size());
  const std::string number = slash == std::string::npos ? "" : name.substr(slash + 1, hash - slash - 1);
  const std::string generation = hash == name.size() ? "" : name.substr(hash + 1);
  if (slash == 0 || !is_number(number) || (hash < name.size() && !is_number(generation)))
    return Error{ErrorCode::invalid_argument, "'" + name + "' is not a replica",
                 "write NAME/N, such as chat/0, or an incarnation of it, such as chat/0#17"};
  return ReplicaTarget{"/api/v1/replicas/" + http::encoded(name.substr(0, slash)) + "/" + number, generation};
}

}  // namespace berth::cli
