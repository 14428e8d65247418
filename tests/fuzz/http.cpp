// Any bytes on a connection: a real server on a Unix socket answers or closes, whatever comes.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "http/request_checks.hpp"
#include "http/server.hpp"
#include "http/url.hpp"

namespace {

using namespace berth::http;

struct Target {
  Target() {
    char folder[] = "/tmp/berth-fuzz-XXXXXX";
    if (!::mkdtemp(folder)) std::abort();
    path = std::string(folder) + "/socket";
    if (!server.listen("unix:" + path)) std::abort();
    thread = std::thread([this] { server.run(); });
    thread.detach();
  }
  std::string path;
  Server server{{.limits = {.header_bytes = 4096, .body_bytes = 4096}},
                [](Request request, const Responder& responder) {
                  Response response;
                  response.body = request.path + std::to_string(request.body.size());
                  responder.send(std::move(response));
                }};
  std::thread thread;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  static Target& target = *new Target;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  Request request;
  set_target(request, bytes);
  if (const auto host = host_name(bytes)) is_own_host(*host, "127.0.0.1", {});
  is_own_origin(bytes, "localhost:8080", false);
  decoded(bytes, true);

  const int client = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  target.path.copy(address.sun_path, sizeof address.sun_path - 1);
  if (::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) std::abort();
  const timeval patience{5, 0};
  ::setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  static_cast<void>(::send(client, data, size, MSG_NOSIGNAL));
  ::shutdown(client, SHUT_WR);
  // It closes within its own time for an idle connection, and long before that where nothing more can come.
  char answer[4096];
  ssize_t got = 0;
  while ((got = ::recv(client, answer, sizeof answer, 0)) > 0) {
  }
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) std::abort();
  ::close(client);
  return 0;
}
