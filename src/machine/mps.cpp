#include "machine/mps.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "world/descriptor.hpp"

namespace berth::machine {
namespace {

// The daemon's socket is of type SEQPACKET. Connecting with a datagram socket fails
// with EPROTOTYPE if a process listens and with another error if none does, and the
// daemon does not notice.
bool is_listened_on(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return false;
  path.copy(address.sun_path, path.size());
  const world::Descriptor probe(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe) return false;
  return connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 || errno == EPROTOTYPE;
}

// Older drivers use a pipe; opening one without a reader for writing fails.
bool is_read_from(const std::string& path) {
  return static_cast<bool>(world::Descriptor(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC)));
}

}  // namespace

std::optional<std::string> mps_control_socket() {
  const char* const folder = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  const std::string path = std::string(folder && *folder ? folder : "/tmp/nvidia-mps") + "/control";
  struct stat found{};
  if (lstat(path.c_str(), &found) != 0) return std::nullopt;
  if (found.st_uid != 0 && found.st_uid != geteuid()) return std::nullopt;
  if (S_ISSOCK(found.st_mode) && is_listened_on(path)) return path;
  if (S_ISFIFO(found.st_mode) && is_read_from(path)) return path;
  return std::nullopt;
}

}  // namespace berth::machine
