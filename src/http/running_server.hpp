// For tests: a server on its own thread, and raw connections to it.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "http/client.hpp"
#include "http/server.hpp"

namespace berth::http::test {

using namespace std::chrono_literals;

// A private folder, removed at the end.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + '/' + name; }

 private:
  std::string path_;
};

class RunningServer {
 public:
  explicit RunningServer(Server::Handler handler, ServerOptions options = {}, std::string address = "127.0.0.1:0",
                         std::optional<TlsFiles> tls = std::nullopt);
  RunningServer(Server::Proxy proxy, ServerOptions options);
  ~RunningServer();

  Server& operator*() { return *server_; }
  Server* operator->() { return server_.get(); }
  const std::string& address() const { return address_; }
  std::string url() const { return (is_tls_ ? "https://" : "http://") + address_; }
  // Ends it before the destructor does.
  void join(std::chrono::milliseconds deadline);
  // Runs on the server's thread; returns when it is done.
  void on_thread(const std::function<void()>& function);
  std::size_t connections();

 private:
  void run(const std::string& address, std::optional<TlsFiles> tls);

  std::unique_ptr<Server> server_;
  std::string address_;
  bool is_tls_;
  std::thread thread_;
};

// A TCP connection to a server, for input that no client would send.
class RawConnection {
 public:
  explicit RawConnection(const std::string& address, int receive_buffer_bytes = 0);
  ~RawConnection();
  RawConnection(RawConnection&&) noexcept;
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  // False: the server has closed it.
  bool send(std::string_view bytes);
  // Sends until the server accepts nothing for 200 ms, at most `bytes_max`; returns how many bytes it accepted.
  std::size_t send_until_full(std::size_t bytes_max);
  void close_half();
  // Reads until the server closes the connection, or `time` without data.
  std::string read_all(std::chrono::milliseconds time = 5s);
  // Reads until `text` has arrived.
  std::string read_until(std::string_view text, std::chrono::milliseconds time = 5s);
  // Whether the connection turns out to be closed within `time`.
  bool is_closed(std::chrono::milliseconds time = 5s);

 private:
  int descriptor_ = -1;
};

// Whether the condition becomes true within five seconds.
bool eventually(const std::function<bool()>& condition);

std::string get(std::string_view path, std::string_view headers = "");

inline Client client_of(const RunningServer& server) { return *Client::create({.url = server.url()}); }

}  // namespace berth::http::test
