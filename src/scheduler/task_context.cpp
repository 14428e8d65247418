#include "berth/scheduler.hpp"

namespace berth {

Result<Buffer> TaskContext::allocate(std::uint64_t bytes) {
  Stream* const on = BERTH_TRY(stream());
  return on->allocate(bytes);
}

Result<Buffer> TaskContext::copy_bytes_in(std::span<const std::byte> from) {
  Stream* const on = BERTH_TRY(stream());
  Buffer buffer = BERTH_TRY(on->allocate(from.size()));
  BERTH_TRY(on->copy_in(buffer, 0, from));
  return buffer;
}

Result<void> TaskContext::copy_bytes_out(const Buffer& from, std::span<std::byte> to) {
  Stream* const on = BERTH_TRY(stream());
  return on->copy_out(from, 0, to);
}

Result<void> TaskContext::wait() {
  Stream* const on = BERTH_TRY(stream());
  return on->wait(deadline());
}

Result<void> TaskContext::launch(const Kernel& kernel, const LaunchShape& shape,
                                 std::initializer_list<Argument> arguments) {
  const std::shared_ptr<LoadedKernel> loaded = BERTH_TRY(load(kernel));
  Stream* const on = BERTH_TRY(stream());
  return on->launch(*loaded, shape, std::span(arguments.begin(), arguments.size()));
}

}  // namespace berth
