// The memory between a program and its worker, with arbitrary content: what is read is refused or within its bounds.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "worker/channel.hpp"

namespace {

using namespace berth::worker;

// As a broken task leaves a structure: the input, then zeros.
template <class Structure>
Structure spoilt(const unsigned char* data, std::size_t size) {
  Structure structure;
  std::memcpy(static_cast<void*>(&structure), data, std::min(size, sizeof structure));
  return structure;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const auto error = spoilt<ErrorText>(data, size);
  if (const auto read = error.error(size > 0 ? data[0] : 1); read && read->message.size() > 1024) std::abort();
  const auto setup = spoilt<Setup>(data, size);
  if (const auto text = setup.device.text(); text && text->size() > 512) std::abort();
  if (const auto text = setup.libraries.text(); text && text->size() > libraries_bytes_max) std::abort();
  const auto request = spoilt<RequestHeader>(data, size);
  checksum_of(request, std::as_bytes(std::span(data, size)));

  // A memory of the right layout with a wrong number of mailboxes, and one with arbitrary content.
  for (const bool has_layout : {false, true}) {
    const int memory = ::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    Setup written = setup;
    if (has_layout) written.layout = Setup::layout_now;
    const std::size_t bytes = has_layout ? sizeof written : std::min<std::size_t>(size, sizeof written);
    if (::write(memory, &written, bytes) < 0 || (size > 0 && ::ftruncate(memory, data[0] * 4096L) != 0)) std::abort();
    const auto channel = Channel::open(berth::world::Descriptor(memory));
    for (std::size_t i = 0; channel && i < channel->mailboxes(); ++i) channel->mailbox(i).state.store(Mailbox::empty);
  }
  return 0;
}
