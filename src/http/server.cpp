#include "http/server.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>

#include "http/connection.hpp"
#include "http/connection_count.hpp"
#include "http/forward.hpp"
#include "http/listening.hpp"
#include "http/tls.hpp"

namespace berth::http {
namespace {

using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;
// Pause after a failed accept, usually for lack of file descriptors.
constexpr std::chrono::milliseconds accept_again{100};
constexpr Duration accept_problem_every = std::chrono::minutes(1);
// How long until a client without power or network is dropped, also in a long poll or a stream.
constexpr std::chrono::seconds client_lost_time{60};

template <class Value>
void set_option(int descriptor, int level, int option, Value value) {
  setsockopt(descriptor, level, option, &value, sizeof value);
}

}  // namespace

struct Listener {
  Listener(asio::io_context& context, Listening opened, ListenAddress wanted)
      : acceptor(context), address(std::move(opened.address)), asked(std::move(wanted)), retry(context) {
    acceptor.assign(asio::generic::stream_protocol(opened.family, 0), opened.descriptor);
    if (!asked.path.empty()) lstat(asked.path.c_str(), &file);
  }
  // Whether the file at the path is still this socket: after a rename, another server may have created one there.
  bool has_file() const {
    struct stat now{};
    return !asked.path.empty() && lstat(asked.path.c_str(), &now) == 0 && now.st_ino == file.st_ino &&
           now.st_dev == file.st_dev;
  }
  Acceptor acceptor;
  std::string address;
  ListenAddress asked;
  struct stat file{};  // of a Unix socket
  asio::steady_timer retry;
  std::shared_ptr<asio::ssl::context> tls;
};

struct Server::State {
  ServerContext serving;
  asio::executor_work_guard<asio::io_context::executor_type> work;
  asio::steady_timer drain_timer;
  TimePoint drain_until{};
  std::optional<TimePoint> accept_problem_at;  // when a problem was last reported
  std::vector<std::shared_ptr<Listener>> listeners;
  std::vector<std::unique_ptr<asio::signal_set>> signal_sets;
  std::set<std::shared_ptr<Connection>> connections;
  ConnectionCount count;

  explicit State(asio::io_context& context, ServerContext made)
      : serving(std::move(made)), work(context.get_executor()), drain_timer(context), count(serving.options.limits) {}

  Result<std::shared_ptr<asio::ssl::context>> tls_of(const TlsFiles& files) const {
    std::shared_ptr<asio::ssl::context> tls = BERTH_TRY(server_tls(files));
    if (serving.options.key_of && serving.options.takes_proofs_over_tls) accept_proofs(*tls, serving.options.key_of);
    return tls;
  }

  asio::io_context& context() { return serving.loop->context; }

  void accept(const std::shared_ptr<Listener>& listener) {
    listener->acceptor.async_accept([this, listener](ErrorValue error, Socket socket) {
      // A connection accepted just before the listener was closed has a waiting client.
      if (!error) take(*listener, std::move(socket));
      if (error == asio::error::operation_aborted || !listener->acceptor.is_open()) return;
      if (!error) return accept(listener);
      report(error);
      listener->retry.expires_after(accept_again);
      listener->retry.async_wait([this, listener](ErrorValue cancelled) {
        if (!cancelled && listener->acceptor.is_open()) accept(listener);
      });
    });
  }

  void report(ErrorValue accept_error) {
    const TimePoint now = real_clock().now();
    if (accept_problem_at && now - *accept_problem_at < accept_problem_every) return;
    accept_problem_at = now;
    if (serving.options.on_accept_problem) serving.options.on_accept_problem(accept_error.message());
  }

  void take(const Listener& listener, Socket socket) {
    const int descriptor = socket.native_handle();
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) return;  // gone already
    Peer peer{.address = address_text(address),
              .unix_uid = {},
              .is_loopback = is_loopback_address(address),
              .is_tls = listener.tls != nullptr};
    std::string local = "unix";
    if (address.ss_family == AF_UNIX) {
      ucred credentials{};
      socklen_t credentials_size = sizeof credentials;
      if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &credentials, &credentials_size) != 0) return;
      peer.unix_uid = credentials.uid;
    } else {
      sockaddr_storage own{};
      socklen_t own_size = sizeof own;
      if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &own_size) != 0) return;
      local = address_text(own);
      set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
      set_option(descriptor, IPPROTO_TCP, TCP_NOTSENT_LOWAT, unsent_bytes_max);
    }
    if (!count.add(peer)) return turn_away(listener, socket);
    auto wire = std::make_unique<Wire>(*serving.loop, std::move(socket));
    if (!peer.unix_uid) wire->notice_loss(client_lost_time);
    const auto connection =
        std::make_shared<Connection>(serving, std::move(wire), listener.tls, std::move(peer), std::move(local));
    connections.insert(connection);
    connection->start();
    if (serving.draining) connection->drain();
  }

  // Sends the reason, if that is possible without waiting.
  void turn_away(const Listener& listener, Socket& socket) const {
    Response full = error_response(503, "unavailable", "the server has too many connections", "try again later");
    full.headers.set("retry-after", "1");
    if (serving.options.on_refused) serving.options.on_refused(full);
    if (listener.tls) return;
    const Link::Body body{.is_chunked = false, .length = full.body.size()};
    const std::string text = response_text(full.status, full.headers, body, false) + full.body;
    ErrorValue ignored;
    socket.non_blocking(true, ignored);
    socket.send(asio::buffer(text), 0, ignored);
    socket.shutdown(Socket::shutdown_send, ignored);
  }

  // Called by the connection's own coroutine, which must end before it is destroyed.
  void forget(Connection& connection) {
    asio::post(context(), [this, weak = connection.weak_from_this()] {
      const auto ended = weak.lock();
      if (!ended) return;
      connections.erase(ended);
      count.remove(ended->peer());
      if (serving.draining && connections.empty()) context().stop();
    });
  }

  void drain(std::chrono::milliseconds deadline, std::chrono::milliseconds idle_time) {
    // A second call can only shorten the time.
    const TimePoint until = real_clock().now() + deadline;
    if (serving.draining && drain_until <= until) return;
    drain_until = until;
    serving.last_idle_time = serving.proxy ? idle_time : std::chrono::milliseconds(0);
    if (!std::exchange(serving.draining, true)) {
      for (const auto& listener : std::exchange(listeners, {})) close(*listener);
      // Runs after the connections that were accepted earlier.
      asio::post(context(), [this] {
        if (connections.empty()) context().stop();
      });
    }
    for (const auto& connection : std::vector(connections.begin(), connections.end())) connection->drain();
    drain_timer.expires_after(deadline);
    drain_timer.async_wait([this](ErrorValue error) {
      if (!error) context().stop();
    });
  }

  static void close(Listener& listener) {
    ErrorValue ignored;
    listener.acceptor.close(ignored);
    listener.retry.cancel();
    if (listener.has_file()) unlink(listener.asked.path.c_str());
  }

  void wait_for_signal(asio::signal_set& set, std::function<void(int)> function) {
    set.async_wait([this, &set, function = std::move(function)](ErrorValue error, int number) mutable {
      if (error) return;
      function(number);
      wait_for_signal(set, std::move(function));
    });
  }
};

Server::Server(ServerOptions options, Handler handler) : Server(std::move(options), std::move(handler), nullptr) {}
Server::Server(ServerOptions options, Proxy proxy) : Server(std::move(options), nullptr, std::move(proxy)) {}

Server::Server(ServerOptions options, Handler handler, Proxy proxy) {
  ServerContext serving;
  serving.options = std::move(options);
  serving.handler = std::move(handler);
  serving.proxy = std::move(proxy);
  asio::io_context& context = serving.loop->context;
  state_ = std::make_shared<State>(context, std::move(serving));
  if (state_->serving.options.key_of) state_->serving.proving = proving_server_tls(state_->serving.options.key_of);
  state_->serving.on_ended = [state = state_.get()](Connection& connection) { state->forget(connection); };
}

Server::~Server() {
  state_->context().stop();
  for (const auto& listener : std::exchange(state_->listeners, {})) State::close(*listener);
  const auto connections = std::exchange(state_->connections, {});
  for (const auto& connection : connections) connection->close(false);
}

Result<std::string> Server::listen(const std::string& address, std::optional<TlsFiles> tls) {
  const ListenAddress parsed = BERTH_TRY(parse_listen_address(address));
  std::shared_ptr<asio::ssl::context> context;
  if (tls) context = BERTH_TRY(state_->tls_of(*tls));
  Listening opened = BERTH_TRY(open_listening(parsed));
  auto listener = std::make_shared<Listener>(state_->context(), std::move(opened), parsed);
  listener->tls = std::move(context);
  state_->listeners.push_back(listener);
  state_->accept(listener);
  return listener->address;
}

void Server::stop_listening(const std::string& address) {
  std::erase_if(state_->listeners, [&](const auto& listener) {
    if (listener->address != address) return false;
    State::close(*listener);
    return true;
  });
}

Result<std::vector<std::string>> Server::listen_only(const std::vector<ListenOn>& wanted) {
  struct Next {
    std::shared_ptr<Listener> listener;
    std::shared_ptr<asio::ssl::context> tls;
    bool is_new = false;
  };
  std::vector<Next> all;
  std::vector<std::shared_ptr<Listener>> left;  // TCP listeners that are no longer listed
  for (const auto& listener : state_->listeners)
    if (listener->asked.path.empty()) left.push_back(listener);
  for (const ListenOn& listener : wanted) {
    const ListenAddress address = BERTH_TRY(parse_listen_address(listener.address));
    Next next;
    if (listener.tls) next.tls = BERTH_TRY(state_->tls_of(*listener.tls));
    const auto found = std::find_if(left.begin(), left.end(), [&](const auto& old) { return old->asked == address; });
    next.is_new = found == left.end();
    if (next.is_new) {
      Listening opened =
          listener.descriptor ? taken_listening(address, *listener.descriptor) : BERTH_TRY(open_listening(address));
      next.listener = std::make_shared<Listener>(state_->context(), std::move(opened), address);
    } else {
      next.listener = *found;
      left.erase(found);
    }
    all.push_back(std::move(next));
  }
  // Nothing can fail from here on.
  for (const auto& listener : left) {
    State::close(*listener);
    std::erase(state_->listeners, listener);
  }
  std::vector<std::string> addresses;
  for (Next& next : all) {
    next.listener->tls = std::move(next.tls);
    addresses.push_back(next.listener->address);
    if (!next.is_new) continue;
    state_->listeners.push_back(next.listener);
    // Accepts later: the caller may close the listener at once, and a connection accepted by then would be lost.
    asio::post(state_->context(), [state = state_.get(), listener = next.listener] {
      if (listener->acceptor.is_open()) state->accept(listener);
    });
  }
  return addresses;
}

std::map<std::string, int> Server::listening() const {
  std::map<std::string, int> all;
  for (const auto& listener : state_->listeners)
    if (listener->asked.path.empty()) all.emplace(to_text(listener->asked), listener->acceptor.native_handle());
  return all;
}

void Server::set_names(std::vector<std::string> names) { state_->serving.options.names = std::move(names); }

void Server::run() { state_->context().run(); }

void Server::shutdown(std::chrono::milliseconds deadline, std::chrono::milliseconds idle_time) {
  asio::post(state_->context(), [state = state_.get(), deadline, idle_time] { state->drain(deadline, idle_time); });
}

void Server::post(std::function<void()> function) { asio::post(state_->context(), std::move(function)); }

void Server::after(std::chrono::milliseconds delay, std::function<void()> function) {
  auto timer = std::make_shared<asio::steady_timer>(state_->context(), delay);
  timer->async_wait([timer, function = std::move(function)](ErrorValue error) {
    if (!error) function();
  });
}

Result<void> Server::on_signal(std::vector<int> signals, std::function<void(int)> function) {
  auto set = std::make_unique<asio::signal_set>(state_->context());
  for (const int number : signals) {
    ErrorValue error;
    set->add(number, error);
    if (error) return Error{ErrorCode::io, "cannot handle signal " + std::to_string(number) + ": " + error.message()};
  }
  state_->wait_for_signal(*set, std::move(function));
  state_->signal_sets.push_back(std::move(set));
  return {};
}

Loop& Server::loop() { return *state_->serving.loop; }

std::size_t Server::connections() const { return state_->count.all(); }

}  // namespace berth::http
