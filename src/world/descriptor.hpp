// Owns a file descriptor and closes it once; other code takes a plain int and owns nothing. The exceptions, and their
// reasons, are in docs/internals/decisions/0018-three-kinds-of-locks.md.
#pragma once

#include <unistd.h>

#include <utility>

namespace berth::world {

class Descriptor {
 public:
  // A negative number means none, so that the result of open() can be passed on unchecked.
  explicit Descriptor(int descriptor = -1) noexcept : descriptor_(descriptor) {}
  Descriptor(Descriptor&& other) noexcept : descriptor_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Descriptor() { static_cast<void>(close()); }

  int get() const noexcept { return descriptor_; }
  explicit operator bool() const noexcept { return descriptor_ >= 0; }
  [[nodiscard]] int release() noexcept { return std::exchange(descriptor_, -1); }
  // For writers: the result of close(), which may be the first to report a full disk.
  int close() noexcept { return descriptor_ >= 0 ? ::close(release()) : 0; }

 private:
  int descriptor_;
};

}  // namespace berth::world
