// How commands reach the server of the fleet: its address, the token, and the exit status for each refusal. Every
// verb about the fleet is a call of the HTTP API and a text for its answer; with --json the answer is printed
// unchanged. A token comes from a file that only its owner can read, never from the command line, and is not sent
// unencrypted to another machine.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "berth/clock.hpp"
#include "cli/command_line.hpp"
#include "cli/text/terminal.hpp"
#include "http/client.hpp"

namespace berth::cli {

// Time between two requests while a verb waits for the fleet.
inline constexpr Duration ask_again = std::chrono::milliseconds(500);

// How long to wait for a server that was started just before the command.
inline constexpr Duration start_wait = std::chrono::seconds(3);

struct ServerArguments {
  // "https://host:8443", "http://127.0.0.1:8080" or "unix:/path"; empty: BERTH_SERVER, or else the socket of the
  // server that this user runs.
  std::string server = {};
  std::string ca_file = {};  // certificates to trust; empty: BERTH_CA_FILE, or else the system's
  bool json = false;
};
// --server and --ca; with --json.
void add_address_options(Verb& verb, ServerArguments& arguments);
void add_server_options(Verb& verb, ServerArguments& arguments);

// The token in a file that only its owner can read. `named_by`: the option or variable, for the advice. not_found:
// there is no such file.
Result<std::string> read_token_file(const std::string& path, const std::string& named_by);
// invalid_argument: a token would be sent to that address unencrypted, over a network.
Result<void> check_takes_token(const std::string& url);

struct Call {
  std::string target;             // path and query, encoded
  std::string method = "GET";     // with a body: PUT or POST
  boost::json::object body = {};  // for PUT and POST
  std::chrono::milliseconds timeout{30'000};
};
struct Answer {
  std::string text;  // unchanged, with a line end
  boost::json::object json;
};

class ServerAccess {
 public:
  // Does not connect. invalid_argument: the address, the CA file or the token file is wrong.
  static Result<ServerAccess> open(const ServerArguments& arguments);

  // A server of this machine that does not listen yet is given `start_wait` once. An answer other than 200 is an
  // error: invalid_argument, not_supported and not_found (status 2), or otherwise a code whose status is 1.
  // unavailable: there is no server, or the state has changed in the meantime.
  Result<Answer> call(const Call& call);
  // The events of the fleet after the event with this id, until the stream ends or the function returns false. An
  // event that is already known may be repeated. timeout: the server is silent and sends no keep-alive either.
  using OnEvent = std::function<bool(const boost::json::object& event)>;
  Result<void> events(std::uint64_t after, const OnEvent& on_event);
  // The output of a replica, byte by byte as it was written, in pieces, until it ends or the function returns false.
  // `follow`: a long silence is not an error.
  using OnOutput = std::function<bool(std::string_view piece)>;
  Result<void> output(const std::string& target, bool follow, const OnOutput& on_output);

 private:
  ServerAccess(http::Client client, bool is_own) : client_(std::move(client)), is_own_(is_own) {}
  Result<http::Response> request(const Call& call);
  Error connection_error(const Error& error) const;
  Result<void> end_of_stream(const Result<http::Response>& response) const;

  http::Client client_;
  bool is_own_;  // this user's own server, at its usual place
  bool may_be_starting_ = true;
};

// The text of an answer, for people.
using AnswerText = std::function<std::string(const boost::json::object& answer, const Style& style)>;

// Calls, and prints the answer or the error. Both return the exit status.
int call_and_print(const ServerArguments& arguments, const Call& call, const AnswerText& text);
// Repeats the call every second until Ctrl-C. A server that goes away is noted below the last answer.
int watch_server(const ServerArguments& arguments, const Call& call, const AnswerText& text);

// A verb that lists things of the fleet, all or one of them, once or with --watch.
struct ListVerb {
  std::string name;  // also used in the API's path
  std::string help;
  std::string argument_help;  // help for NAME; empty: there is no such argument
  AnswerText all;
  AnswerText single = {};
  std::vector<Names> offered = {};  // for NAME
  // The path for NAME; null: NAME is appended to the path of the list. A path with a query returns a list.
  std::function<Result<std::string>(const std::string& name)> target = nullptr;
  // A flag that shows the same answer as another text; empty: there is none.
  struct View {
    std::string flag, help;
    AnswerText text;
  } view = {};
};
void add_list_verb(const Verb& command, const ListVerb& list);

struct ReplicaTarget {
  std::string path;        // "/api/v1/replicas/chat/0"
  std::string generation;  // "17" of "chat/0#17"; empty: none was named
};
// invalid_argument: not of the form NAME/N or NAME/N#GENERATION.
Result<ReplicaTarget> replica_target(const std::string& name);

// The error in the body of an answer. `status` decides if the body is not from the API.
Error error_of_answer(int status, std::string_view body, const std::string& server);

}  // namespace berth::cli
