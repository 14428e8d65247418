#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <future>
#include <mutex>

#include "berth/clock.hpp"
#include "http/running_server.hpp"

namespace berth::http::test {

Folder::Folder() {
  char name[] = "/tmp/berth-http-test-XXXXXX";
  path_ = mkdtemp(name);
}
Folder::~Folder() { std::filesystem::remove_all(path_); }

RunningServer::RunningServer(Server::Handler handler, ServerOptions options, std::string address,
                             std::optional<TlsFiles> tls)
    : server_(std::make_unique<Server>(std::move(options), std::move(handler))), is_tls_(tls.has_value()) {
  run(address, std::move(tls));
}

RunningServer::RunningServer(Server::Proxy proxy, ServerOptions options)
    : server_(std::make_unique<Server>(std::move(options), std::move(proxy))), is_tls_(false) {
  run("127.0.0.1:0", std::nullopt);
}

void RunningServer::run(const std::string& address, std::optional<TlsFiles> tls) {
  address_ = server_->listen(address, std::move(tls)).value();
  thread_ = std::thread([this] { server_->run(); });
}

RunningServer::~RunningServer() { join(0ms); }

void RunningServer::join(std::chrono::milliseconds deadline) {
  if (!thread_.joinable()) return;
  server_->shutdown(deadline);
  thread_.join();
}

void RunningServer::on_thread(const std::function<void()>& function) {
  std::promise<void> done;
  server_->post([&] {
    function();
    done.set_value();
  });
  done.get_future().wait();
}

std::size_t RunningServer::connections() {
  std::size_t count = 0;
  on_thread([&] { count = server_->connections(); });
  return count;
}

RawConnection::RawConnection(const std::string& address, int receive_buffer_bytes)
    : descriptor_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (receive_buffer_bytes > 0)
    setsockopt(descriptor_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(descriptor_, reinterpret_cast<sockaddr*>(&to), sizeof to), 0) << std::strerror(errno);
}

RawConnection::~RawConnection() {
  if (descriptor_ >= 0) close(descriptor_);
}
RawConnection::RawConnection(RawConnection&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

bool RawConnection::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

std::size_t RawConnection::send_until_full(std::size_t bytes_max) {
  const std::string bytes(100'000, 'x');
  std::size_t all = 0;
  pollfd ready{descriptor_, POLLOUT, 0};
  while (all < bytes_max && poll(&ready, 1, 200) == 1) {
    const ssize_t sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0) break;
    all += static_cast<std::size_t>(sent);
  }
  return all;
}

void RawConnection::close_half() { shutdown(descriptor_, SHUT_WR); }

std::string RawConnection::read_until(std::string_view text, std::chrono::milliseconds time) {
  std::string all;
  pollfd ready{descriptor_, POLLIN, 0};
  while ((text.empty() || all.find(text) == all.npos) && poll(&ready, 1, static_cast<int>(time.count())) == 1) {
    char bytes[65536];
    const ssize_t got = recv(descriptor_, bytes, sizeof bytes, 0);
    if (got <= 0) break;
    all.append(bytes, static_cast<std::size_t>(got));
  }
  return all;
}

std::string RawConnection::read_all(std::chrono::milliseconds time) { return read_until({}, time); }

bool RawConnection::is_closed(std::chrono::milliseconds time) {
  pollfd ready{descriptor_, POLLIN, 0};
  if (poll(&ready, 1, static_cast<int>(time.count())) != 1) return false;
  char byte = 0;
  return recv(descriptor_, &byte, 1, MSG_PEEK) <= 0;
}

bool eventually(const std::function<bool()>& condition) {
  std::mutex mutex;
  std::condition_variable never;
  const Deadline deadline = Deadline::after(real_clock(), 5s);
  while (!condition()) {
    const TimePoint now = real_clock().now();
    if (deadline.passed(now)) return false;
    std::unique_lock lock(mutex);
    real_clock().wait_until(never, lock, now + 5ms);
  }
  return true;
}

std::string get(std::string_view path, std::string_view headers) {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" + std::string(headers) + "\r\n";
}

}  // namespace berth::http::test
