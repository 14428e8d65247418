#include "berth/device.hpp"

namespace berth {

Result<void> Stream::wait(Deadline deadline) {
  return record().and_then([&](std::shared_ptr<Event> event) { return event->wait(deadline); });
}

}  // namespace berth
