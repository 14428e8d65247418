#include "device/query.hpp"

#include <algorithm>
#include <cmath>

#include "device/deadline_call.hpp"

namespace berth::device {

Error late_error(const std::string& who, Duration waited, std::string where) {
  const double seconds = std::chrono::duration<double>(waited).count();
  return {ErrorCode::timeout,
          who + " has not answered for " + std::to_string(std::lround(std::max(1.0, seconds))) + " s",
          "check the kernel log: sudo dmesg | tail", std::move(where)};
}

std::vector<BackendAnswer> query_devices(Backends backends, Duration deadline) {
  std::vector<DeadlineCall<std::vector<DeviceInfo>>> calls;
  const Deadline until = Deadline::after(real_clock(), deadline);
  for (const auto& backend : backends) {
    calls.emplace_back([backend] { return backend->list(); },
                       late_error("the " + std::string(backend->name()) + " back end", deadline, {}));
  }
  std::vector<BackendAnswer> answers;
  for (std::size_t i = 0; i < backends.size(); ++i)
    answers.push_back({std::string(backends[i]->name()), calls[i].wait(until)});
  return answers;
}

std::vector<Link> query_links(Backends backends, Duration deadline) {
  std::vector<DeadlineCall<std::vector<Link>>> calls;
  const Deadline until = Deadline::after(real_clock(), deadline);
  for (const auto& backend : backends) calls.emplace_back([backend] { return backend->links(); }, Error{});
  std::vector<Link> links;
  for (auto& call : calls) {
    const Result<std::vector<Link>> answer = call.wait(until);
    if (answer) links.insert(links.end(), answer->begin(), answer->end());
  }
  return links;
}

std::vector<Result<std::shared_ptr<Device>>> open_devices(Backends backends, std::span<const DeviceInfo> devices,
                                                          Duration deadline) {
  std::vector<DeadlineCall<std::shared_ptr<Device>>> calls;
  const Deadline until = Deadline::after(real_clock(), deadline);
  for (const DeviceInfo& info : devices) {
    const auto backend = std::find_if(backends.begin(), backends.end(),
                                      [&](const auto& candidate) { return candidate->name() == info.backend; });
    BERTH_ASSERT(backend != backends.end());
    calls.emplace_back([backend = *backend, id = info.id] { return backend->open(id); },
                       late_error("the device", deadline, info.id.text()));
  }
  std::vector<Result<std::shared_ptr<Device>>> opened;
  for (auto& call : calls) opened.push_back(call.wait(until));
  return opened;
}

}  // namespace berth::device
