// One connection of a server: reads a request, hands it to the handler, writes the answer, and repeats. Everything
// here runs on the server's thread, in one coroutine, with a second one beside it that notices when the client of a
// request in progress is gone. Every wait for the client has a time limit; only a handler may take any time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "berth/clock.hpp"
#include "http/exchange.hpp"
#include "http/link.hpp"
#include "http/loop.hpp"

namespace berth::http {

// State shared by the connections of a server. Outlives them.
struct ServerContext {
  std::shared_ptr<Loop> loop = std::make_shared<Loop>();
  ServerOptions options;
  Server::Handler handler;
  Server::Proxy proxy;  // used in place of the handler
  bool draining =
      false;  // a shutdown has begun: no further request on any connection, unless its client was promised one
  std::chrono::milliseconds last_idle_time{0};  // then, how long a client has to send it
  std::function<void(Connection&)> on_ended;
  std::shared_ptr<asio::ssl::context> proving;  // null: ServerOptions::key_of is
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // `tls` is the listener's; null: it has none.
  Connection(ServerContext& serving, std::unique_ptr<Wire> wire, std::shared_ptr<asio::ssl::context> tls, Peer peer,
             std::string local_address);

  // Call it once. ServerContext::on_ended() is called at the end.
  void start();
  // `call_gone`: notify the handler of the request in progress that its client is gone.
  void close(bool call_gone);
  // For a shutdown: closes an idle connection, at once or after ServerContext::last_idle_time, ends a stream, and lets
  // requests be answered, including one on its way.
  void drain();

  // Called by a Responder; `channel` belongs to the request of the Responder, which may be over.
  void answer(const std::shared_ptr<Channel>& channel, Response response);
  void begin(const std::shared_ptr<Channel>& channel, StreamHead head);
  void flush(const std::shared_ptr<Channel>& channel);
  void drop(const std::shared_ptr<Channel>& channel);

  const Peer& peer() const { return peer_; }

 private:
  enum class Phase : std::uint8_t {
    idle,  // handshake, or between two requests
    reading,
    proxying,
    handling,
    writing,  // the answer
    streaming,
    closed,
  };
  struct Refusal {
    int status = 0;
    std::string code, message;
  };

  Async<void> run();
  Async<bool> shake_hands();
  // One request and its answer. False: the connection is over.
  Async<bool> exchange();
  std::optional<Refusal> refusal_of(Link::Outcome outcome, std::string_view part) const;
  std::optional<Refusal> check_head();
  // Checks Host and Origin; only on servers with a page.
  std::optional<Refusal> check_origin() const;
  Async<std::optional<Refusal>> read_body();
  void handle();
  Async<void> watch();
  Async<bool> write_answer();
  Async<bool> write_stream(StreamHead head);
  Async<bool> refuse(Refusal refusal);
  Async<void> linger();
  std::string head_text(int status, const Headers& headers, std::string_view length_header) const;
  Async<bool> write(std::string_view bytes, bool reader_may_pause = false);
  std::string take_stream_data(bool& is_last);
  Wire& wire() { return link_.wire(); }

  ServerContext& serving_;
  std::shared_ptr<asio::ssl::context> tls_;
  Link link_;
  Peer peer_;
  std::string local_address_;
  Phase phase_ = Phase::idle;
  bool is_first_ = true;
  bool lacks_tls_ = false;  // the client sends plain text to a port with TLS, and gets only a refusal
  bool end_of_input_ = false;

  // Head of the request in progress.
  Head head_;
  Request request_;
  std::shared_ptr<Channel> channel_;
  std::variant<std::monostate, Response, StreamHead> answer_;
  bool keep_alive_ = false;

  Signal wake_;  // there is an answer, more of a stream, or the connection is closed
  std::optional<Running> watch_;
  std::optional<Running> run_;
};

}  // namespace berth::http
