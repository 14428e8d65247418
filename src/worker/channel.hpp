// Channel: the memory through which a program and one of its workers communicate. It has a mailbox
// for every task that the worker can run at a time: the program puts a request in, a thread of the
// worker answers. Both spin for a moment before they sleep, so that a short task costs no wake-up.
//
// A broken task can write anything into this memory at any time, including the mailboxes of other
// tasks, so both sides read a copy and check the copy.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "berth/clock.hpp"
#include "berth/result.hpp"
#include "berth/worker.hpp"
#include "world/descriptor.hpp"

namespace berth::worker {

inline constexpr std::size_t message_bytes_max = detail::worker_message_bytes_max;
inline constexpr std::size_t libraries_bytes_max = 4096;

// A text of limited length; longer text is cut off.
template <std::size_t size_max>
class FixedText {
 public:
  FixedText& operator=(std::string_view text) noexcept {
    size_ = static_cast<std::uint32_t>(std::min(text.size(), size_max));
    std::copy_n(text.data(), size_, bytes_.data());
    return *this;
  }
  // Must be called on a copy. Absent: the size is not one that the other side writes.
  std::optional<std::string> text() const {
    if (size_ > size_max) return std::nullopt;
    return std::string(bytes_.data(), size_);
  }

 private:
  std::uint32_t size_ = 0;
  std::array<char, size_max> bytes_{};
};

// The worker's set-up, written before it starts.
struct Setup {
  static constexpr std::uint64_t layout_now = 0x6265727468000003;  // changes with any change in this file
  std::uint64_t layout = layout_now;
  std::int32_t parent = 0;  // its process id
  std::uint32_t mailboxes = 0;
  std::uint64_t shared_bytes = 0;
  std::uint32_t host_devices = 1;  // as in BackendOptions
  FixedText<64> backend;
  FixedText<512> device;
  FixedText<libraries_bytes_max> libraries;  // paths, one per line
};

// The content of a mailbox has a checksum, because a broken task may have overwritten it. Both sides
// copy it before they check it.
struct RequestHeader {
  std::uint64_t number = 0;      // counts all requests of the program to this worker, from 1
  std::uint64_t task = 0;        // task_number() of its name
  std::int64_t deadline_ns = 0;  // on the machine's steady clock
  std::uint32_t argument_bytes = 0;
  std::uint32_t value_bytes = 0;
  std::uint64_t priority = 0;  // a Priority
  std::uint64_t checksum = 0;
};
struct Request {
  RequestHeader header;
  alignas(16) std::array<std::byte, message_bytes_max> arguments{};
  FixedText<detail::task_name_bytes_max> task_name;  // for a worker that does not know the task
};

struct AnswerHeader {
  std::uint64_t request = 0;      // that it answers
  std::uint32_t code = 0;         // 0: done, with a value; otherwise an ErrorCode plus one, with an ErrorText
  std::uint32_t device_busy = 0;  // 1: the device may still work on it
  std::uint32_t declined = 0;     // 1: it cannot run on this device
  std::uint32_t reserved = 0;
  std::uint64_t checksum = 0;
};
struct ErrorText {
  std::uint32_t has_driver = 0;
  std::int32_t driver_code = 0;
  FixedText<128> driver_name;
  FixedText<1024> message;
  FixedText<512> advice;

  ErrorText() = default;
  explicit ErrorText(const Error& error);
  // Must be called on a copy; absent: no worker writes this.
  std::optional<Error> error(std::uint32_t code) const;
};

// The number by which the program and its worker identify a task, because its name may be long.
std::uint64_t task_number(std::string_view name) noexcept;
// The checksum of the header, excluding its own checksum, and its data.
std::uint64_t checksum_of(const RequestHeader& header, std::span<const std::byte> arguments) noexcept;
std::uint64_t checksum_of(const AnswerHeader& header, std::span<const std::byte> value_or_error) noexcept;

// Ordered so that a short task moves three cache lines from one processor to another and back: the
// state, the request, the answer.
struct Mailbox {
  enum State : std::uint32_t { empty, asked, answered };
  alignas(64) std::atomic<std::uint32_t> state{empty};  // both sides wait on this
  std::atomic<std::uint32_t> worker_sleeps{0};
  std::atomic<std::uint32_t> program_sleeps{0};
  std::atomic<std::uint32_t> cancelled{0};
  alignas(64) Request request;
  // The number of the request that a thread of the worker has started. Until then the program has
  // the same number here with all bits inverted, which no broken task writes by chance.
  alignas(64) std::atomic<std::uint64_t> begun{0};
  AnswerHeader answer;
  alignas(16) std::array<std::byte, message_bytes_max> value{};
  ErrorText error;
};

// Memory that can be handed to another process and never changes its size. Not copyable.
class SealedMemory {
 public:
  static Result<SealedMemory> make(const char* name, std::uint64_t bytes);
  // Opens memory that the process inherited as this descriptor.
  static Result<SealedMemory> open(world::Descriptor descriptor);
  SealedMemory(SealedMemory&& other) noexcept;
  SealedMemory& operator=(SealedMemory&&) = delete;
  ~SealedMemory();
  int descriptor() const noexcept { return descriptor_.get(); }
  std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  SealedMemory(world::Descriptor descriptor, std::span<std::byte> bytes) noexcept
      : descriptor_(std::move(descriptor)), bytes_(bytes) {}
  world::Descriptor descriptor_;
  std::span<std::byte> bytes_;
};

class Channel {
 public:
  static Result<Channel> make(const Setup& setup);
  // Called in the worker.
  static Result<Channel> open(world::Descriptor descriptor);

  int descriptor() const noexcept { return memory_.descriptor(); }
  const Setup& setup() const noexcept { return *reinterpret_cast<const Setup*>(memory_.bytes().data()); }
  Mailbox& mailbox(std::size_t i) const noexcept;
  std::size_t mailboxes() const noexcept { return mailboxes_; }

 private:
  Channel(SealedMemory memory, std::size_t mailboxes) noexcept : memory_(std::move(memory)), mailboxes_(mailboxes) {}
  SealedMemory memory_;
  std::size_t mailboxes_;  // not read from the memory, where the other side may change it
};

// Sleeps while `word` is `value`, at most `longest`; the word may be in memory shared with another process.
void sleep_while(const std::atomic<std::uint32_t>& word, std::uint32_t value, Duration longest) noexcept;
void wake(const std::atomic<std::uint32_t>& word) noexcept;

}  // namespace berth::worker
