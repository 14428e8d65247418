// What a gateway reads of requests: the model in a body, checked against a full parser, and any bytes on a connection
// that a proxy passes on. The server behind it must never see more requests than the proxy has passed on.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <boost/json.hpp>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gateway/json_peek.hpp"
#include "gateway/routes.hpp"
#include "http/dialer.hpp"
#include "http/forward.hpp"
#include "http/server.hpp"

namespace {

using namespace berth;
using http::Async;

void check_peek(std::string_view text) {
  using Outcome = gateway::Peeked::Outcome;
  const gateway::Peeked peeked = gateway::peek_member(text, "model");
  boost::json::error_code error;
  boost::json::parse_options options;
  options.max_depth = 32;
  const boost::json::value whole = boost::json::parse(text, error, {}, options);
  const boost::json::object* const object = error ? nullptr : whole.if_object();
  const boost::json::value* const model = object ? object->if_contains("model") : nullptr;
  std::optional<std::string> wanted;
  if (model && model->is_string()) wanted = std::string(model->as_string());
  if (model && model->is_int64()) wanted = std::to_string(model->as_int64());
  if (model && model->is_uint64()) wanted = std::to_string(model->as_uint64());
  if (peeked.outcome == Outcome::found && wanted != peeked.text) std::abort();
  if (peeked.outcome == Outcome::absent && (!object || wanted)) std::abort();
  if (peeked.outcome == Outcome::not_json && object) std::abort();
}

struct Target {
  Target() {
    char folder[] = "/tmp/berth-fuzz-XXXXXX";
    if (!::mkdtemp(folder)) std::abort();
    path = std::string(folder) + "/proxy";
    if (!behind.listen("unix:" + std::string(folder) + "/behind") || !proxy.listen("unix:" + path)) std::abort();
    dialer.emplace(*http::Dialer::create({.url = "unix:" + std::string(folder) + "/behind"}));
    std::thread([this] { behind.run(); }).detach();
    std::thread([this] { proxy.run(); }).detach();
  }
  Async<bool> pass_on(http::Link& client, http::Head& head) {
    auto server = co_await dialer->connect(proxy.loop());
    if (!server) std::abort();
    http::ForwardOptions options;
    options.text = http::request_text(head, http::end_to_end(head.headers), client.body());
    ++passed_on;
    const http::Forwarded forwarded = co_await http::forward(client, head, **server, options);
    co_return forwarded.is_client_kept;
  }
  std::string path;
  std::optional<http::Dialer> dialer;
  std::atomic<std::uint64_t> passed_on = 0, received = 0;
  http::Server behind{{.limits = {.body_bytes = 65536}},
                      [this](http::Request request, const http::Responder& responder) {
                        ++received;
                        responder.send({200, {}, std::move(request.body)});
                      }};
  http::Server proxy{{.serves_page = false, .limits = {.header_bytes = 4096}},
                     http::Server::Proxy([this](http::Link& client, http::Head& head, const http::Peer&) {
                       return pass_on(client, head);
                     })};
};

// The table is made from the input, line by line, and so is what is asked: the last two lines. The answer is that of a
// search through all deployments.
void check_routes(std::string_view bytes) {
  std::vector<std::string> lines;
  while (lines.size() < 12 && !bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    lines.emplace_back(bytes.substr(0, end));
    bytes.remove_prefix(end == bytes.npos ? bytes.size() : end + 1);
  }
  if (lines.size() < 4) return;
  const std::string path = lines.back(), host = *(lines.end() - 2);
  const auto without_slash = [](std::string text) {
    while (text.ends_with('/')) text.pop_back();
    return text;
  };
  std::map<DeploymentId, gateway::Deployment> deployments;
  std::map<std::pair<std::string, std::string>, std::vector<DeploymentId>> addresses;
  for (std::size_t i = 0; i + 4 <= lines.size(); i += 2) {
    gateway::Deployment& deployment = deployments[DeploymentId("d" + std::to_string(i))];
    if (!lines[i].empty()) deployment.serving.host = lines[i];
    deployment.serving.path = lines[i + 1];
    addresses[{lines[i], without_slash(lines[i + 1])}].push_back(DeploymentId("d" + std::to_string(i)));
  }
  std::optional<DeploymentId> expected;
  std::pair<bool, std::size_t> best;  // a host goes before a path, a long path before a short one
  for (const auto& [address, names] : addresses) {
    const auto& [of, prefix] = address;
    const bool is_meant = (of.empty() || of == host) && path.starts_with(prefix) &&
                          (path.size() == prefix.size() || path[prefix.size()] == '/');
    const std::pair rank(!of.empty(), prefix.size());
    if (names.size() > 1 || !is_meant || (expected && rank < best)) continue;
    expected = names.front();
    best = rank;
  }
  if (gateway::Routes(deployments).by_address({host, path}) != expected) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  static Target& target = *new Target;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check_peek(bytes);
  check_routes(bytes);

  const int client = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  target.path.copy(address.sun_path, sizeof address.sun_path - 1);
  if (::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) std::abort();
  const timeval patience{5, 0};
  ::setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  static_cast<void>(::send(client, data, size, MSG_NOSIGNAL));
  ::shutdown(client, SHUT_WR);
  char answer[4096];
  ssize_t got = 0;
  while ((got = ::recv(client, answer, sizeof answer, 0)) > 0) {
  }
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) std::abort();
  ::close(client);
  if (target.received > target.passed_on) std::abort();
  return 0;
}
