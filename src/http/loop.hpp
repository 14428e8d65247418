// The event loop of a server. Kept alive by all who may post to it from another thread, so that an answer that comes
// after the server's end is dropped without harm.
#pragma once

#include <memory>
#include <utility>

#include "http/asio.hpp"

namespace berth::http {

struct Loop {
  asio::io_context context{1};
};

// Calls `function` on the loop's thread: at once if this is it. Dropped if the loop is gone.
template <class Function>
void run_on(const std::weak_ptr<Loop>& loop, Function function) {
  if (const auto alive = loop.lock()) asio::dispatch(alive->context, std::move(function));
}

}  // namespace berth::http
