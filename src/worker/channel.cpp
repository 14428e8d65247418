#include "worker/channel.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

namespace berth::worker {
namespace {

Error system_error(const char* what) {
  return {ErrorCode::io, std::string(what) + ": " + std::strerror(errno), "check the limits on memory and files"};
}

template <class Header>
std::uint64_t checksum(const Header& header, std::span<const std::byte> data) noexcept {
  static_assert(std::has_unique_object_representations_v<Header>);
  const std::uint64_t seed = XXH3_64bits(&header, offsetof(Header, checksum));
  return XXH3_64bits_withSeed(data.data(), data.size(), seed);
}

constexpr std::size_t mailboxes_begin = (sizeof(Setup) + alignof(Mailbox) - 1) / alignof(Mailbox) * alignof(Mailbox);

}  // namespace

ErrorText::ErrorText(const Error& error) {
  message = error.message;
  advice = error.advice;
  has_driver = error.driver ? 1 : 0;
  if (!error.driver) return;
  driver_code = error.driver->code;
  driver_name = error.driver->name;
}

std::optional<Error> ErrorText::error(std::uint32_t code) const {
  const std::optional<std::string> message_text = message.text(), advised = advice.text(), driver = driver_name.text();
  if (code == 0 || code > static_cast<std::uint32_t>(ErrorCode::internal) + 1 || !message_text || !advised || !driver ||
      has_driver > 1)
    return std::nullopt;
  Error error{static_cast<ErrorCode>(code - 1), *message_text, *advised};
  if (has_driver) error.driver = DriverError{driver_code, *driver};
  return error;
}

std::uint64_t task_number(std::string_view name) noexcept { return XXH3_64bits(name.data(), name.size()); }

std::uint64_t checksum_of(const RequestHeader& header, std::span<const std::byte> arguments) noexcept {
  return checksum(header, arguments);
}
std::uint64_t checksum_of(const AnswerHeader& header, std::span<const std::byte> value_or_error) noexcept {
  return checksum(header, value_or_error);
}

Result<SealedMemory> SealedMemory::make(const char* name, std::uint64_t bytes) {
  // Newer kernels expect a flag saying that the memory contains no code; older ones refuse it.
  constexpr unsigned no_code = 8U;
  world::Descriptor descriptor(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | no_code));
  if (!descriptor) descriptor = world::Descriptor(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!descriptor || ftruncate(descriptor.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(descriptor.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return system_error("cannot make memory to share with a worker");
  return open(std::move(descriptor));
}

Result<SealedMemory> SealedMemory::open(world::Descriptor descriptor) {
  struct stat status{};
  void* at = MAP_FAILED;
  if (fstat(descriptor.get(), &status) == 0 && status.st_size > 0)
    at = mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(),
              0);
  if (at == MAP_FAILED) return system_error("cannot map memory shared with a worker");
  return SealedMemory(std::move(descriptor), {static_cast<std::byte*>(at), static_cast<std::size_t>(status.st_size)});
}

SealedMemory::SealedMemory(SealedMemory&& other) noexcept
    : descriptor_(std::move(other.descriptor_)), bytes_(std::exchange(other.bytes_, {})) {}

SealedMemory::~SealedMemory() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

Result<Channel> Channel::make(const Setup& setup) {
  SealedMemory memory =
      BERTH_TRY(SealedMemory::make("berth-channel", mailboxes_begin + setup.mailboxes * sizeof(Mailbox)));
  new (memory.bytes().data()) Setup(setup);
  Channel channel(std::move(memory), setup.mailboxes);
  for (std::size_t i = 0; i < setup.mailboxes; ++i) new (&channel.mailbox(i)) Mailbox;
  return channel;
}

Result<Channel> Channel::open(world::Descriptor descriptor) {
  SealedMemory memory = BERTH_TRY(SealedMemory::open(std::move(descriptor)));
  const auto* setup = reinterpret_cast<const Setup*>(memory.bytes().data());
  if (memory.bytes().size() < mailboxes_begin || setup->layout != Setup::layout_now ||
      memory.bytes().size() != mailboxes_begin + setup->mailboxes * sizeof(Mailbox))
    return Error{ErrorCode::not_supported, "the worker and the program were built with different versions of Berth",
                 "build both with the same version"};
  const std::size_t mailboxes = setup->mailboxes;
  return Channel(std::move(memory), mailboxes);
}

Mailbox& Channel::mailbox(std::size_t i) const noexcept {
  return *reinterpret_cast<Mailbox*>(memory_.bytes().data() + mailboxes_begin + i * sizeof(Mailbox));
}

void sleep_while(const std::atomic<std::uint32_t>& word, std::uint32_t value, Duration longest) noexcept {
  if (longest <= Duration::zero()) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(longest);
  const timespec time{seconds.count(), (longest - seconds).count()};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}

void wake(const std::atomic<std::uint32_t>& word) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace berth::worker
