#include "gateway/take_over.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "http/listening.hpp"
#include "world/descriptor_message.hpp"

namespace berth::gateway {

using world::Descriptor;

namespace {

constexpr std::size_t text_bytes_max = 16 * 1024;
constexpr int answer_ms = 5'000;
constexpr char is_ready = 'r', is_yours = 'y';

std::string socket_file(const std::string& folder) { return folder + "/take-over.socket"; }

Error failed(const char* what) {
  return {ErrorCode::unavailable, std::string("cannot take over from the running gateway: ") + what};
}

void set_time_limit(int socket) {
  const timeval limit{answer_ms / 1000, 0};
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

bool send_byte(int socket, char byte) { return ::send(socket, &byte, 1, MSG_NOSIGNAL) == 1; }
bool receive_byte(int socket, char expected) {
  char byte = 0;
  return ::recv(socket, &byte, 1, 0) == 1 && byte == expected;
}

// Sends the addresses, one per line, with one descriptor each.
bool send_sockets(int to, const std::map<std::string, int>& sockets) {
  std::string text;
  std::vector<int> descriptors;
  for (const auto& [address, descriptor] : sockets) {
    if (descriptors.size() == world::message_descriptors_max) break;
    text += address + "\n";
    descriptors.push_back(descriptor);
  }
  return !descriptors.empty() && world::send_message(to, text, descriptors);
}

std::map<std::string, Descriptor> receive_sockets(int from) {
  std::map<std::string, Descriptor> sockets;
  std::optional<world::DescriptorMessage> received = world::receive_message(from, text_bytes_max);
  if (!received) return sockets;
  std::string_view rest = received->text;
  for (Descriptor& descriptor : received->descriptors) {
    const std::size_t end = rest.find('\n');
    if (end == rest.npos) break;
    sockets.emplace(std::string(rest.substr(0, end)), std::move(descriptor));
    rest.remove_prefix(end + 1);
  }
  return sockets;
}

}  // namespace

Result<TakeOver> TakeOver::begin(const std::string& folder) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = socket_file(folder);
  if (path.size() >= sizeof address.sun_path) return failed("the path of its folder is too long");
  std::memcpy(address.sun_path, path.data(), path.size());
  TakeOver made;
  made.connection_ = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!made.connection_) return failed(std::strerror(errno));
  set_time_limit(made.connection_.get());
  if (::connect(made.connection_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return failed(std::strerror(errno));
  made.sockets_ = receive_sockets(made.connection_.get());
  if (made.sockets_.empty()) return failed("it does not answer");
  return made;
}

void TakeOver::give_to(std::vector<http::ListenOn>& listeners) {
  for (http::ListenOn& listener : listeners) {
    const auto address = http::parse_listen_address(listener.address);
    if (!address) continue;
    if (const auto found = sockets_.find(to_text(*address)); found != sockets_.end())
      listener.descriptor = found->second.release();
  }
  sockets_.clear();
}

void TakeOver::finish() {
  if (send_byte(connection_.get(), is_ready)) receive_byte(connection_.get(), is_yours);
  connection_.close();  // close before trying the lock: from now on the old gateway does not release it
}

Result<std::unique_ptr<TakeOverOffer>> TakeOverOffer::make(const std::string& folder, Sockets sockets, Take taken) {
  http::Listening listening = BERTH_TRY(http::open_listening({"", 0, socket_file(folder)}));
  Descriptor descriptor(listening.descriptor), end(::eventfd(0, EFD_CLOEXEC));
  if (!end) return failed(std::strerror(errno));
  return std::unique_ptr<TakeOverOffer>(
      new TakeOverOffer(std::move(descriptor), std::move(end), std::move(sockets), std::move(taken)));
}

TakeOverOffer::TakeOverOffer(Descriptor listening, Descriptor end, Sockets sockets, Take taken)
    : listening_(std::move(listening)),
      end_(std::move(end)),
      sockets_(std::move(sockets)),
      taken_(std::move(taken)),
      thread_([this] { run(); }) {}

TakeOverOffer::~TakeOverOffer() {
  end();
  thread_.join();
}

void TakeOverOffer::end() {
  if (std::exchange(has_ended_, true)) return;
  ::shutdown(listening_.get(), SHUT_RDWR);  // from here on nothing can connect
  const std::uint64_t increment = 1;
  static_cast<void>(::write(end_.get(), &increment, sizeof increment));
}

void TakeOverOffer::run() {
  while (true) {
    pollfd polled[] = {{listening_.get(), POLLIN, 0}, {end_.get(), POLLIN, 0}};
    if (::poll(polled, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (polled[1].revents != 0) return;
    const Descriptor connection(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection) serve(connection.get());
  }
}

void TakeOverOffer::serve(int connection) {
  ucred peer{};
  socklen_t size = sizeof peer;
  const bool is_known = ::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  if (!is_known || peer.uid != ::geteuid()) return;
  if (!send_sockets(connection, sockets_())) return;
  // The new gateway first gets a view of the fleet from its server. If it fails, it closes the connection.
  pollfd polled[] = {{connection, POLLIN, 0}, {end_.get(), POLLIN, 0}};
  while (::poll(polled, 2, -1) < 0 && errno == EINTR) {
  }
  if (polled[1].revents != 0 || !receive_byte(connection, is_ready)) return;
  const auto is_there = [connection] {
    char byte = 0;
    return ::recv(connection, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EINTR);
  };
  if (taken_(is_there)) send_byte(connection, is_yours);
}

}  // namespace berth::gateway
