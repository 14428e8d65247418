#include "http/exchange.hpp"

#include "http/connection.hpp"
#include "http/loop.hpp"

namespace berth::http {
namespace {

// Calls `function` with the connection on the server's thread, if it still exists.
template <class Function>
void with_connection(const std::shared_ptr<Channel>& channel, Function function) {
  run_on(channel->loop, [channel, function = std::move(function)]() mutable {
    if (const auto connection = channel->connection.lock()) function(*connection, channel);
  });
}

bool take_answer(Channel& channel) {
  const std::lock_guard lock(channel.mutex);
  return !std::exchange(channel.answered, true);
}

void send(const std::shared_ptr<Channel>& channel, Response response) {
  if (!take_answer(*channel)) return;
  with_connection(channel, [response = std::move(response)](Connection& connection, const auto& of) mutable {
    connection.answer(of, std::move(response));
  });
}

void close(const std::shared_ptr<Channel>& channel) {
  {
    const std::lock_guard lock(channel->mutex);
    if (!channel->open) return;
    channel->open = false;
    channel->ended = true;
  }
  with_connection(channel, [](Connection& connection, const auto& of) { connection.flush(of); });
}

}  // namespace

void Channel::set_gone(bool call) {
  std::vector<std::function<void()>> callbacks;
  std::function<void()> room;
  {
    const std::lock_guard lock(mutex);
    if (gone || complete) return;
    gone = true;
    open = false;
    callbacks.swap(on_gone);
    room.swap(on_room);
  }
  // Destroy the callbacks that are not called, too: a callback may own a Responder, and with it this channel.
  if (!call) return;
  for (const auto& callback : callbacks) callback();
}

void Channel::set_complete() {
  std::vector<std::function<void()>> callbacks;
  std::function<void()> room;
  const std::lock_guard lock(mutex);
  complete = true;
  open = false;
  callbacks.swap(on_gone);
  room.swap(on_room);
}

Exchange::~Exchange() {
  close(channel);
  send(channel, error_response(500, "internal", "the server has no answer to this request"));
}

bool Stream::write(std::string_view bytes) const {
  Channel& channel = *exchange_->channel;
  bool overflow = false;
  {
    const std::lock_guard lock(channel.mutex);
    if (!channel.open) return false;
    if (bytes.empty() || channel.is_head) return true;
    overflow = channel.pending.size() + channel.in_flight + bytes.size() > channel.stream_bytes_max;
    if (overflow) {
      channel.open = false;
    } else {
      append_chunk(channel.pending, bytes);
      if (std::exchange(channel.flush_posted, true)) return true;
    }
  }
  if (overflow)
    with_connection(exchange_->channel, [](Connection& connection, const auto& of) { connection.drop(of); });
  else
    with_connection(exchange_->channel, [](Connection& connection, const auto& of) { connection.flush(of); });
  return !overflow;
}

void Stream::close() const { http::close(exchange_->channel); }

std::size_t Stream::buffered_bytes() const {
  const std::lock_guard lock(exchange_->channel->mutex);
  return exchange_->channel->pending.size() + exchange_->channel->in_flight;
}

void Stream::on_room(std::function<void()> room) const {
  Channel& channel = *exchange_->channel;
  {
    const std::lock_guard lock(channel.mutex);
    if (!channel.open) return;
    if (!channel.has_room()) {
      channel.on_room.swap(room);
      return;
    }
  }
  run_on(channel.loop, std::move(room));
}

bool Stream::is_open() const {
  const std::lock_guard lock(exchange_->channel->mutex);
  return exchange_->channel->open;
}

void Responder::send(Response response) const { http::send(exchange_->channel, std::move(response)); }

Stream Responder::stream(StreamHead head) const {
  Channel& channel = *exchange_->channel;
  {
    const std::lock_guard lock(channel.mutex);
    if (std::exchange(channel.answered, true)) return Stream(exchange_);
    if (!channel.gone) {
      channel.open = true;
      channel.flush_posted = true;  // begin() flushes
    }
  }
  with_connection(exchange_->channel, [head = std::move(head)](Connection& connection, const auto& of) mutable {
    connection.begin(of, std::move(head));
  });
  return Stream(exchange_);
}

void Responder::on_gone(std::function<void()> gone) const {
  Channel& channel = *exchange_->channel;
  {
    const std::lock_guard lock(channel.mutex);
    if (channel.complete) return;
    if (!channel.gone) {
      channel.on_gone.push_back(std::move(gone));
      return;
    }
  }
  run_on(channel.loop, std::move(gone));
}

}  // namespace berth::http
