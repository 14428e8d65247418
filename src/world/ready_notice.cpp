#include "world/ready_notice.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "world/descriptor.hpp"

namespace berth::world {

ReadyNotice::ReadyNotice() {
  if (const char* const given = std::getenv("NOTIFY_SOCKET")) socket_ = given;
  ::unsetenv("NOTIFY_SOCKET");
}

void ReadyNotice::send() const {
  constexpr std::string_view state = "READY=1";
  sockaddr_un address{};
  if (socket_.empty() || socket_.size() >= sizeof address.sun_path) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket_.data(), socket_.size());
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';  // an abstract name, not a file
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  const Descriptor descriptor(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!descriptor) return;
  ::sendto(descriptor.get(), state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address),
           size);
}

}  // namespace berth::world
