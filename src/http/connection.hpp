// One connection of a server: reads a request, hands it to the handler, writes the answer, and again. Everything here
// runs on the server's thread. A connection is always in one phase, and each phase but `handling` has a time by which
// it must end; the server's sweep() looks at these times.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "berth/clock.hpp"
#include "http/exchange.hpp"
#include "http/loop.hpp"
#include "http/wire.hpp"

namespace berth::http {

// What the connections of a server have in common. Outlives them.
struct Serving {
  std::shared_ptr<Loop> loop = std::make_shared<Loop>();
  ServerOptions options;
  Server::Handler handler;
  bool draining = false;  // a shutdown has begun: no second request on any connection
  std::function<void(Connection&)> on_closed;
  std::shared_ptr<asio::ssl::context> proving;  // null: ServerOptions::key_of is
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Serving& serving, std::unique_ptr<Wire> wire, std::shared_ptr<asio::ssl::context> tls, Peer peer,
             std::string local_address);
  ~Connection();

  void start();
  // At once. `call_gone`: tell the handler of the request in progress that its client is gone.
  void close(bool call_gone);
  // Ends what is too late, and keeps streams alive.
  void sweep(TimePoint now);
  // For a shutdown: closes an idle connection, ends a stream, and lets a request be answered.
  void drain();

  // From a Responder; `channel` is that of its request, which may be over.
  void answer(const std::shared_ptr<Channel>& channel, Response response);
  void begin(const std::shared_ptr<Channel>& channel, StreamHead head);
  void flush(const std::shared_ptr<Channel>& channel);
  void drop(const std::shared_ptr<Channel>& channel);

  const Peer& peer() const { return peer_; }

 private:
  enum class Phase : std::uint8_t {
    handshake,
    waiting,  // for the first byte of a request
    header,
    body,
    handling,  // no time limit: a long poll
    writing,   // the answer
    streaming,
    lingering,  // refused: reads what the client still sends, so that it gets our answer and not a reset
    closed,
  };
  struct Parser;

  void shake_hands();
  void read();
  void on_read(ErrorValue error, std::size_t bytes);
  void parse();
  bool parse_header();
  bool parse_body();
  bool check_header();
  void handle();
  void refuse(int status, std::string_view code, std::string_view message);
  void write_head(int status, const Headers& headers, std::string_view length_header);
  void write();
  void on_written(ErrorValue error, std::size_t bytes);
  bool take_stream_data();
  void complete();
  void set_phase(Phase phase, std::chrono::milliseconds time);

  Serving& serving_;
  std::shared_ptr<asio::ssl::context> tls_;  // of the listener when this connection began
  std::unique_ptr<Wire> wire_;
  Peer peer_;
  std::string local_address_;

  Phase phase_ = Phase::handshake;
  TimePoint deadline_ = TimePoint::max();

  std::array<char, 16 * 1024> read_buffer_;
  std::string in_;  // read and not yet parsed
  bool reading_ = false;
  bool end_of_input_ = false;
  std::size_t discarded_bytes_ = 0;

  std::unique_ptr<Parser> parser_;
  Request request_;
  std::shared_ptr<Channel> channel_;
  bool is_head_ = false;
  bool keep_alive_ = false;
  bool refused_ = false;

  std::string out_;
  std::size_t out_offset_ = 0;
  std::size_t piece_end_ = 0;  // of what must be written by `deadline_`
  bool writing_ = false;
  bool last_chunk_written_ = false;
  bool reader_may_pause_ = false;
  std::string stream_keep_alive_;
  std::chrono::milliseconds stream_keep_alive_every_{0};
  TimePoint next_keep_alive_ = TimePoint::max();
};

}  // namespace berth::http
