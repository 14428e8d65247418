#include "relay/relay.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "http/dialer.hpp"
#include "http/forward.hpp"
#include "http/secret.hpp"
#include "relay/relay_links.hpp"

namespace berth::relay {

using http::Async;
using http::Head;
using http::Link;
using Outcome = http::Link::Outcome;

namespace {

constexpr std::string_view own_headers = "x-berth-";
// Gateways drop slow clients after 20 s. If a relay did so first, that would look like a failed replica.
constexpr std::chrono::milliseconds gateway_time{60'000};

// A target may be a new incarnation of a replica under the same name: its address distinguishes them.
std::string pool_of(const Target& target) { return target.name + ' ' + target.address; }

http::Headers without_own(http::Headers headers) {
  headers.remove_if([](const std::string& name, const std::string&) { return name.starts_with(own_headers); });
  return headers;
}

http::Headers reason_header(std::string_view header, std::string_view why) {
  http::Headers headers;
  headers.set(header, std::string(why));
  return headers;
}

}  // namespace

// One connection to a gateway.
struct Relay::Connection {
  std::unique_ptr<Link> link;  // null: not connected yet, or closed
  bool is_idle = true;
  bool is_opening = true;
  std::optional<http::Running> running;
};

struct Relay::Gateway {
  Gateway(http::Loop& loop, http::Dialer of) : dialer(std::move(of)), wake(loop) {}

  http::Dialer dialer;
  bool is_wanted = true;
  std::list<Connection> connections;
  std::size_t wanted = 0;             // connections that it has requested and that are not open yet
  std::chrono::milliseconds wait{0};  // after the last failure
  TimePoint again{};                  // no new attempt before this time
  std::string problem;                // why it cannot use this relay
  http::Signal wake;                  // a connection is busy or over, or the gateway is no longer wanted
  std::optional<http::Running> running;
};

Relay::Relay(http::Loop& loop, RelayOptions options) : loop_(loop), options_(std::move(options)), idle_closed_(loop) {
  closing_.emplace(close_idle());
}

Relay::~Relay() = default;

void Relay::set_gateways(const std::vector<http::ClientOptions>& gateways) {
  gateways_.remove_if([](const Gateway& gateway) { return gateway.running && gateway.running->is_done(); });
  for (Gateway& gateway : gateways_) gateway.is_wanted = false;
  for (const http::ClientOptions& options : gateways) {
    const auto known = std::find_if(gateways_.begin(), gateways_.end(), [&](const Gateway& gateway) {
      const http::ClientOptions& of = gateway.dialer.options();
      return of.url == options.url && of.fingerprint == options.fingerprint &&
             of.token == http::parse_token(options.token).secret && !gateway.running->is_done();
    });
    if (known != gateways_.end()) {
      known->is_wanted = true;
      continue;
    }
    Result<http::Dialer> dialer = http::Dialer::create(options);
    if (!dialer) continue;  // the server has already checked it
    Gateway& added = gateways_.emplace_back(loop_, *std::move(dialer));
    added.running.emplace(keep_open(added));
  }
  for (Gateway& gateway : gateways_) gateway.wake.notify();
}

// Keeps some connections to the gateway idle, until it is no longer wanted and all have ended.
Async<void> Relay::keep_open(Gateway& gateway) {
  while (true) {
    gateway.connections.remove_if(
        [](const Connection& connection) { return connection.running && connection.running->is_done(); });
    const bool is_open = gateway.is_wanted && !is_draining_;
    if (!is_open) {
      for (Connection& connection : gateway.connections)
        if (connection.is_idle && connection.link) connection.link->wire().cancel();  // serve() informs the gateway
      if (gateway.connections.empty()) co_return;
    }
    const auto idle = static_cast<std::size_t>(std::count_if(gateway.connections.begin(), gateway.connections.end(),
                                                             [](const Connection& c) { return c.is_idle; }));
    const std::size_t room = options_.connections_max - std::min(options_.connections_max, gateway.connections.size());
    const auto opening = static_cast<std::size_t>(std::count_if(gateway.connections.begin(), gateway.connections.end(),
                                                                [](const Connection& c) { return c.is_opening; }));
    std::size_t missing = idle < options_.spare ? options_.spare - idle : 0;
    missing = std::max(missing, gateway.wanted - std::min(gateway.wanted, opening));
    missing = is_open ? std::min(missing, room) : 0;
    TimePoint until = TimePoint::max();
    if (missing > 0 && real_clock().now() < gateway.again) {
      until = gateway.again;
      missing = 0;
    }
    // After a failure, only one connection is tried; the others follow if it succeeds.
    if (gateway.wait.count() > 0) missing = std::min<std::size_t>(missing, 1);
    for (; missing > 0; --missing) {
      Connection& connection = gateway.connections.emplace_back();
      connection.running.emplace(serve(gateway, connection));
    }
    co_await gateway.wake.wait(until);
  }
}

Async<bool> Relay::begin(Gateway& gateway, Connection& connection) {
  auto connected = co_await gateway.dialer.connect(loop_, real_clock().now() + options_.connect_time);
  if (!connected) co_return false;
  Link& link = **connected;
  std::string text = "POST ";
  text.append(relay_path).append(" HTTP/1.1\r\nhost: ").append(gateway.dialer.url().authority);
  text.append("\r\nconnection: upgrade\r\nupgrade: ").append(relay_protocol);
  text.append("\r\nx-berth-node: ").append(options_.node).append("\r\ncontent-length: 0\r\n\r\n");
  link.wire().write_by(real_clock().now() + options_.connect_time);
  const http::ErrorValue error = co_await link.write(text);
  if (error) co_return false;
  Head answer;
  link.wire().read_by(real_clock().now() + options_.connect_time);
  const Outcome outcome = co_await link.read_response(answer, Link::head_bytes_max, false);
  if (outcome != Outcome::done) co_return false;
  // A gateway with another protocol must not get a connection, because it would misread the answers.
  const std::string_view theirs = answer.headers.get("upgrade").value_or("");
  gateway.problem.clear();
  if (answer.status == 426 || (answer.status == 101 && theirs != relay_protocol))
    gateway.problem = protocol_problem("the gateway at " + gateway.dialer.url().authority, theirs);
  if (answer.status != 101 || !gateway.problem.empty()) co_return false;
  link.wire().notice_loss(http::peer_lost_time);
  link.wire().read_by(TimePoint::max());
  link.wire().write_by(TimePoint::max());
  connection.link = *std::move(connected);
  co_return true;
}

std::string Relay::problem() const {
  for (const Gateway& gateway : gateways_)
    if (gateway.is_wanted && !gateway.problem.empty()) return gateway.problem;
  return {};
}

// Opens as many connections as the gateway requests. A connection that is idle here may be busy at the gateway, while a
// client slowly reads the answer.
void Relay::open_more(Gateway& gateway, const Head& request) {
  const std::string_view more = request.headers.get(header_more).value_or("");
  if (more.empty()) return;
  std::from_chars(more.data(), more.data() + more.size(), gateway.wanted);
  gateway.wake.notify();
}

Async<void> Relay::serve(Gateway& gateway, Connection& connection) {
  const TimePoint begun_at = real_clock().now();
  bool goes_on = co_await begin(gateway, connection);
  connection.is_opening = false;
  if (goes_on) {
    gateway.wait = std::chrono::milliseconds(0);
    gateway.wanted -= std::min<std::size_t>(gateway.wanted, 1);
  } else if (begun_at >= gateway.again) {  // connections that fail together count as one failure
    gateway.wait = std::clamp(2 * gateway.wait, options_.again_min, options_.again_max);
    gateway.again = real_clock().now() + gateway.wait;
  }
  gateway.wake.notify();
  while (goes_on) {
    Link& link = *connection.link;
    connection.is_idle = true;
    const Outcome begun = co_await link.wait_for_message();
    connection.is_idle = false;
    gateway.wake.notify();
    if (begun != Outcome::done) {
      // Sends an unsolicited answer: if the gateway has just sent a request, the answer shows that it has not started.
      if (!gateway.is_wanted || is_draining_) co_await end(link);
      break;
    }
    Head head;
    const Outcome read = co_await link.read_request(head, Link::head_bytes_max);
    if (read != Outcome::done) break;
    open_more(gateway, head);
    const bool is_kept = co_await pass_on(link, head);
    goes_on = is_kept && gateway.is_wanted && !is_draining_;
    // The gateway may already have sent the next request.
    if (is_kept && !goes_on) co_await end(link);
  }
  connection.link.reset();
  connection.is_idle = false;
  gateway.wake.notify();
}

// Refuses a request that may be on its way, and ignores whatever still arrives.
Async<void> Relay::end(Link& link) {
  const http::Headers headers = reason_header(header_refused, refused_leaving);
  const http::ErrorValue error =
      co_await link.write(http::response_text(503, headers, {.is_chunked = false, .length = 0}, false));
  bool is_open = !error;
  link.wire().read_by(real_clock().now() + options_.end_time);
  while (is_open) {
    const Link::Piece piece = co_await link.read_raw();
    is_open = piece.outcome == Outcome::done;
  }
}

Async<bool> Relay::refuse(Link& link, const Head& head, int status, http::Headers headers) {
  const std::string_view name = head.headers.get(header_target).value_or("");
  const bool waits = head.headers.get("expect").has_value();
  // Discards the part of the body that was already sent. A gateway that waits for permission has sent none.
  bool is_kept = true;
  while (is_kept && !waits && !link.is_read()) {
    const Link::Piece piece = co_await link.read_piece();
    is_kept = piece.outcome == Outcome::done;
  }
  is_kept = is_kept && link.is_read();
  headers.set(header_load, load_text(name));
  const http::ErrorValue error =
      co_await link.write(http::response_text(status, headers, {.is_chunked = false, .length = 0}, is_kept));
  co_return is_kept && !error;
}

std::string Relay::load_text(std::string_view name) const {
  const Admission::Load load = admission_.load(name);
  return std::to_string(load.in_flight) + '/' + std::to_string(load.concurrent_max);
}

Async<std::unique_ptr<Link>> Relay::connect(const Target& target, std::string& problem) {
  std::unique_ptr<Link> idle = idle_.take(pool_of(target));
  if (idle) co_return std::move(idle);
  if (options_.check) {
    Result<world::Descriptor> checked = options_.check(target);
    if (!checked) {
      problem = checked.error().message;
      co_return nullptr;
    }
    if (*checked) {
      http::Socket socket(loop_.context);
      http::ErrorValue error;
      socket.assign(http::asio::generic::stream_protocol(AF_UNIX, 0), checked->release(), error);
      co_return std::make_unique<Link>(std::make_unique<http::Wire>(loop_, std::move(socket)));
    }
  }
  Result<http::Dialer> dialer = http::Dialer::create({.url = target.address});
  if (!dialer) {
    problem = dialer.error().message;
    co_return nullptr;
  }
  auto connected = co_await dialer->connect(loop_, real_clock().now() + options_.connect_time);
  if (!connected) {
    problem = connected.error().message;
    co_return nullptr;
  }
  co_return *std::move(connected);
}

Async<bool> Relay::pass_on(Link& link, Head& head) {
  const std::string name(head.headers.get(header_target).value_or(""));
  const bool waits = head.headers.get("expect").has_value();
  if (is_draining_) co_return co_await refuse(link, head, 503, reason_header(header_refused, refused_leaving));
  const Admission::Answer answer = admission_.admit(name);
  if (answer != Admission::Answer::admitted)
    co_return co_await refuse(link, head, 503, reason_header(header_refused, to_string(answer)));
  const Target target = *admission_.find(name);
  bool is_counted = true;
  const std::function<void()> end = [&] {
    if (std::exchange(is_counted, false)) admission_.end(name);
  };
  std::string problem;
  std::unique_ptr<Link> upstream = co_await connect(target, problem);
  if (!upstream) {
    end();
    http::Headers headers = reason_header(header_refused, "unreachable");
    headers.set(header_failed, problem);
    co_return co_await refuse(link, head, 503, std::move(headers));
  }
  if (waits) {
    const http::ErrorValue error = co_await link.write("HTTP/1.1 100 Continue\r\n\r\n");
    if (error) {
      end();
      co_return false;
    }
  }
  http::ForwardOptions options;
  options.client_time = options.first_byte_time = options.silence_time = options_.exchange_time;
  options.text = http::request_text(head, without_own(http::end_to_end(head.headers)), link.body());
  options.on_answer = [&](Head& given) {
    given.headers = without_own(std::move(given.headers));  // a replica must not set headers of the relay
    given.headers.set(header_load, load_text(name));
    return true;
  };
  options.client_time = gateway_time;
  // A gateway that has the whole answer may send the next request at once.
  options.on_server_free = end;
  const http::Forwarded forwarded = co_await http::forward(link, head, *upstream, options);
  end();
  if (forwarded.is_server_kept) keep(target, std::move(upstream));
  if (forwarded.end != http::Forwarded::End::server_failed || forwarded.reached_client)
    co_return forwarded.is_client_kept;
  co_return co_await refuse(link, head, 502, reason_header(header_failed, forwarded.problem));
}

void Relay::keep(const Target& target, std::unique_ptr<Link> link) {
  if (admission_.find(target.name) == nullptr) return;
  idle_.put(pool_of(target), std::move(link));
}

// Every second, closes connections that have been idle for too long.
Async<void> Relay::close_idle() {
  while (!is_draining_) {
    co_await idle_closed_.wait(real_clock().now() + std::chrono::seconds(1));
    idle_.close_old(real_clock().now());
  }
}

Async<void> Relay::drain() {
  is_draining_ = true;
  idle_closed_.notify();
  for (Gateway& gateway : gateways_) gateway.wake.notify();
  for (Gateway& gateway : gateways_) co_await gateway.running->join();
  co_await closing_->join();
  idle_.clear();
}

}  // namespace berth::relay
