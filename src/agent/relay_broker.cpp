#include "agent/relay_broker.hpp"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "agent/replica_job.hpp"
#include "relay/control.hpp"
#include "world/descriptor_message.hpp"

namespace berth::agent {
namespace {

using world::Descriptor;

constexpr std::size_t text_bytes_max = std::size_t{64} * 1024;
constexpr std::string_view unix_prefix = "unix:";

Error unavailable(const std::string& what) { return {ErrorCode::unavailable, what}; }

// The port in "http://127.0.0.1:40001".
std::uint16_t port_of(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  std::uint16_t port = 0;
  std::from_chars(address.data() + colon + 1, address.data() + address.size(), port);
  return port;
}

Result<Descriptor> connect_to(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return unavailable("the path of socket " + path + " is too long");
  path.copy(address.sun_path, path.size());
  // Non-blocking: a replica with a full queue does not delay the others.
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return unavailable("cannot connect to socket " + path + ": " + std::strerror(errno));
  return socket;
}

Result<Descriptor> connect_to_job(const relay::Target& target) {
  const std::filesystem::path folder = target.job;
  const machine::Job job = BERTH_TRY(machine::find_job(folder.parent_path(), folder.filename()));
  const std::string path = target.address.substr(unix_prefix.size()), end = ", not to " + target.name;
  const std::optional<FoundJob> found = found_job(job, real_clock().now());
  if (!found || found->socket != path) return unavailable("socket " + path + " belongs to another job" + end);
  Descriptor socket = BERTH_TRY(connect_to(path));
  ucred process{};
  socklen_t size = sizeof process;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &process, &size) != 0 || process.uid != job.user)
    return unavailable("socket " + path + " belongs to user " + std::to_string(process.uid) + end);
  return socket;
}

// "+", with the descriptor if there is one, or "-" and the problem.
void send_answer(int to, const Result<Descriptor>& answer) {
  const std::string text = answer ? "+" : "-" + answer.error().message.substr(0, text_bytes_max - 1);
  const int descriptor = answer && *answer ? answer->get() : -1;
  world::send_message(to, text, std::span(&descriptor, descriptor >= 0 ? 1U : 0U));
}

[[noreturn]] void serve(int socket) {
  TargetChecks checks;
  std::string text(text_bytes_max, '\0');
  while (true) {
    const ssize_t size = ::recv(socket, text.data(), text.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) ::_exit(0);  // the relay has ended
    const Result<relay::Control> asked = relay::read_control({text.data(), static_cast<std::size_t>(size)});
    if (!asked || asked->targets.size() != 1)
      send_answer(socket, unavailable("a broker checks one target at a time"));
    else
      send_answer(socket, checks(asked->targets.front()));
  }
}

}  // namespace

Result<Descriptor> TargetChecks::operator()(const relay::Target& target) {
  if (target.address.starts_with(unix_prefix)) return connect_to_job(target);
  BERTH_TRY(owners_.check(port_of(target.address), target.job, target.name));
  return Descriptor();
}

Result<Descriptor> start_broker() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return Error{ErrorCode::io, std::string("cannot open a socket: ") + std::strerror(errno)};
  Descriptor own(ends[0]), other(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return Error{ErrorCode::io, std::string("cannot start a process: ") + std::strerror(errno)};
  if (child > 0) return own;
  ::prctl(PR_SET_NAME, "berth-broker");
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The broker keeps only standard error of the inherited descriptors.
  ::dup2(other.get(), STDIN_FILENO);
  ::close_range(STDERR_FILENO + 1, ~0U, 0);
  serve(STDIN_FILENO);
}

Result<Descriptor> ask_broker(const Descriptor& broker, const relay::Target& target) {
  const std::string question = to_text(relay::Control{{target}, {}});
  const Error ended{ErrorCode::io, "the broker of the relay has ended"};
  if (::send(broker.get(), question.data(), question.size(), MSG_NOSIGNAL) < 0) return ended;
  std::optional<world::DescriptorMessage> answer = world::receive_message(broker.get(), text_bytes_max);
  if (!answer) return ended;
  if (answer->text.front() != '+') return unavailable(answer->text.substr(1));
  return answer->descriptors.empty() ? Descriptor() : std::move(answer->descriptors.front());
}

}  // namespace berth::agent
