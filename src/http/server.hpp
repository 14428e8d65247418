// An HTTP/1.1 server on one thread: listeners (TCP or Unix socket, plain or TLS), connections, handlers, posted
// functions and timers all run on the thread that is in run(). A handler must not block; slow work is done
// elsewhere and answered later through its Responder, from any thread. Everything that a client can make grow is
// bounded (Limits). Requests whose Host is not ours (DNS rebinding) or whose Origin is another page are refused
// before a handler sees them. It does not know about tokens or routes.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "berth/result.hpp"
#include "http/async.hpp"
#include "http/message.hpp"

namespace berth::http {

struct Exchange;  // one request and its answer; http/exchange.hpp
class Link;       // a connection; http/link.hpp
struct Loop;

// An answer of unknown length. Copies refer to the same stream. Thread-safe.
class Stream {
 public:
  // Does not block. False: the client is gone, the stream is closed, or the client reads so slowly that
  // Limits::stream_bytes are waiting for it; then its connection is dropped.
  bool write(std::string_view bytes) const;
  // Ends the answer after what was written before.
  void close() const;
  // Bytes that were written but not yet passed to the kernel.
  std::size_t buffered_bytes() const;
  // `room` is called once, on the server's thread, when at most a quarter of Limits::stream_bytes waits for the
  // client: for a source that would otherwise be faster than its reader. Called soon if that is already true. Never
  // called if the stream ends first, or if a later call has replaced it. It must not own a copy of the Stream.
  void on_room(std::function<void()> room) const;
  bool is_open() const;

  explicit Stream(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}

 private:
  std::shared_ptr<Exchange> exchange_;
};

// How a stream begins.
struct StreamHead {
  int status = 200;
  Headers headers = {};
  // Written after each `keep_alive_every` without other writes, so that a broken connection is noticed; empty: nothing.
  std::string keep_alive = {};
  std::chrono::milliseconds keep_alive_every{15'000};
  // Limits::write_time does not apply: a pager continues to read when its user turns the page.
  bool reader_may_pause = false;
};

// Answers one request, once: the first send() or stream() counts, later ones do nothing. Copies refer to the same
// answer. Thread-safe. If the last copy is destroyed without an answer, the client gets status 500.
class Responder {
 public:
  void send(Response response) const;
  // The client of a HEAD request gets the headers only, and the stream is closed.
  Stream stream(StreamHead head) const;
  // `gone` is called once, on the server's thread, when the client closes the connection before the answer is
  // complete: for a long poll or a stream whose source should stop. Called at once if the client is already gone.
  // Never called after a complete answer, nor when the server is destroyed. A function that owns a copy of the
  // Responder or its Stream keeps the answer open until it is called.
  void on_gone(std::function<void()> gone) const;

  explicit Responder(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}

 private:
  std::shared_ptr<Exchange> exchange_;
};

struct Limits {
  std::size_t header_bytes = 16 * 1024;
  std::size_t body_bytes = 4 * 1024 * 1024;
  std::size_t stream_bytes = 1024 * 1024;         // waiting for a slow reader
  std::size_t connections = 704;                  // over TCP; with Unix ones below the usual 1024 files
  std::size_t connections_of_loopback = 400;      // limit within these, because any user of this machine can open them
  std::size_t connections_of_address = 256;       // from one address that is not loopback
  std::size_t connections_of_unix = 64;           // over Unix sockets, which only their owner can open
  std::chrono::milliseconds header_time{10'000};  // TLS handshake; first to last byte of a header
  std::chrono::milliseconds body_time{60'000};    // first to last byte of a body
  std::chrono::milliseconds idle_time{60'000};    // between two requests
  std::chrono::milliseconds write_time{30'000};   // time for each 64 KiB of an answer
};

struct KnownKey {
  std::string credential;
  std::string key;
};

struct ServerOptions {
  // Answers get the headers that protect a page, and requests from pages of other sites or for other names are
  // refused. False: a proxy, which forwards the answers of others.
  bool serves_page = true;
  // Names and addresses, without a port, that requests may use as Host in addition to loopback names and the address
  // that the client connected to.
  std::vector<std::string> names = {};
  Limits limits = {};
  // The largest body of a request, if it is not always Limits::body_bytes; called before the body is read, on the
  // server's thread. Null: it is always Limits::body_bytes.
  std::function<std::size_t(const Request& head)> body_bytes = nullptr;
  // The key of a Proof with this identity, and the value that Peer::credential gets. Listeners without TLS accept
  // connections that begin with a proof, as well as plain ones; called on the server's thread. Null: none.
  std::function<std::optional<KnownKey>(std::string_view identity)> key_of = nullptr;
  bool takes_proofs_over_tls = false;  // listeners with TLS accept them too
  // Called if connections cannot be accepted, usually for lack of file descriptors; at most once a minute, on the
  // server's thread. They wait until it is possible again.
  std::function<void(const std::string& problem)> on_accept_problem = nullptr;
  // Called with each answer to a request that cannot be read or is not valid HTTP/1.1, and to a connection beyond the
  // limits; it may add headers. On the server's thread. Null: nothing is called.
  std::function<void(Response& answer)> on_refused = nullptr;
};

// Both files in PEM form; the certificate file may contain a chain.
struct TlsFiles {
  std::string certificate_file;
  std::string key_file;
  // The authority whose certificates clients may present (Peer::certificate); empty: none is requested.
  std::string client_authority_file = {};
};

struct ListenOn {
  std::string address;  // as Server::listen() takes it
  std::optional<TlsFiles> tls = std::nullopt;
  std::optional<int> descriptor = std::nullopt;  // of a socket that already listens there; the server becomes its owner
};

class Server {
 public:
  // Called on the server's thread. An exception that leaves it becomes status 500.
  using Handler = std::function<void(Request, Responder)>;
  // Reads the body from the connection and writes the answer to it, as both arrive: for a proxy. False: the connection
  // is closed after it. Everything that it uses outlives it; it ends soon after its connection was closed.
  using Proxy = std::function<Async<bool>(Link& client, Head& head, const Peer& peer)>;

  Server(ServerOptions options, Handler handler);
  Server(ServerOptions options, Proxy proxy);
  // Closes everything immediately. Must not be called during run().
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // "127.0.0.1:8080", "[::1]:0", "localhost:8080" (IPv4), or "unix:/path/to/socket" (mode 0600; a socket file that no
  // process listens on is replaced). Returns the same with the port that was chosen. Before run() or on its thread.
  // invalid_argument: the address or the TLS files are wrong; unavailable: in use; io: any other failure.
  Result<std::string> listen(const std::string& address, std::optional<TlsFiles> tls = std::nullopt);
  // Stops accepting connections on that address, as returned by listen(). Before run() or on its thread.
  void stop_listening(const std::string& address);
  // Listens on these TCP addresses and on no other: opens those that are new, stops accepting connections on those no
  // longer listed, and reads all TLS files again. Open connections continue unchanged; Unix sockets are not affected.
  // Returns the addresses with the ports that were chosen. On an error, as of listen(), nothing has changed. Before
  // run() or on its thread.
  Result<std::vector<std::string>> listen_only(const std::vector<ListenOn>& wanted);
  // The sockets of TCP addresses that listen now, by address as requested. Call it on the thread of run().
  std::map<std::string, int> listening() const;
  // Replaces ServerOptions::names. Before run() or on its thread.
  void set_names(std::vector<std::string> names);

  // Serves until a shutdown is complete. On one thread, once.
  void run();

  // May be called on any thread. Closes the listeners and idle connections, ends the streams, waits until the
  // requests in progress are answered, at most for `deadline`, and makes run() return. A second call may only shorten
  // the time. With a Proxy, connections that its answers keep are closed only after they have been idle for
  // `idle_time`: their clients do not know yet that another request will fail.
  void shutdown(std::chrono::milliseconds deadline, std::chrono::milliseconds idle_time = {});

  // Calls `function` on the server's thread, in the order of posting. May be called on any thread. Dropped if run()
  // has returned.
  void post(std::function<void()> function);
  // The same after `delay`. There is no way to cancel it: the function must check whether it is still wanted.
  void after(std::chrono::milliseconds delay, std::function<void()> function);
  // Calls `function` on the server's thread each time the process gets one of these signals, instead of their usual
  // effect. Before run() or on its thread.
  Result<void> on_signal(std::vector<int> signals, std::function<void(int)> function);

  // Number of open connections. Call it on the server's thread.
  std::size_t connections() const;

  // For connections to other servers that are used on the same thread.
  Loop& loop();

 private:
  struct State;
  Server(ServerOptions options, Handler handler, Proxy proxy);
  std::shared_ptr<State> state_;
};

}  // namespace berth::http
