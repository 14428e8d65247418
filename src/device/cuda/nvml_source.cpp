#include "device/cuda/nvml_source.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "device/cuda/nvml_calls.hpp"

namespace berth::nvml {
namespace {

// The number of events kept for slow readers. A reader that reads four times a second misses events only if the driver
// reports more than a thousand per second.
constexpr std::size_t events_kept = 256;

struct Starts {
  std::shared_mutex mutex;  // guards the members below; shared during calls that use handles
  std::uint64_t number = 1;

  static Starts& of_library() {
    static auto& starts = *new Starts;  // used until after the end of main
    return starts;
  }
};

}  // namespace

LibraryUse::LibraryUse() : lock_(Starts::of_library().mutex), start_(Starts::of_library().number) {}

void start_library_again() {
  const Result<const Library*> loaded = Library::load();
  if (!loaded || !(*loaded)->nvmlShutdown) return;
  Starts& starts = Starts::of_library();
  const std::unique_lock lock(starts.mutex, std::try_to_lock);
  if (!lock) return;
  ++starts.number;
  (*loaded)->nvmlShutdown();
  // If this fails, calls report that the library is not initialized, and a later restart tries again.
  static_cast<void>((*loaded)->nvmlInit_v2());
}

Result<Source> find_source(const std::string& uuid, const LibraryUse& use) {
  Result<const Library*> loaded = Library::load();
  if (!loaded) return std::move(loaded).error();
  const Library& library = **loaded;
  DeviceHandle handle = nullptr;
  if (const Code code = library.nvmlDeviceGetHandleByUUID(uuid.c_str(), &handle); code != success) {
    Error error = error_of(code, "looking for the device", uuid);
    if (error.code == ErrorCode::not_found) {
      error.message = "the NVIDIA driver has no device '" + uuid + "'";
      error.advice = "see `nvidia-smi -L` for its devices";
    }
    return error;
  }
  Calls calls;
  DeviceHandle gpu = handle;
  unsigned gpu_instance = whole_gpu, compute_instance = whole_gpu;
  if (uuid.starts_with("MIG-")) {
    calls.ok(library.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle, &gpu);
    calls.ok(library.nvmlDeviceGetGpuInstanceId, handle, &gpu_instance);
    calls.ok(library.nvmlDeviceGetComputeInstanceId, handle, &compute_instance);
  }
  std::string gpu_uuid = gpu == handle ? uuid : uuid_of(library, gpu).value_or(uuid);
  EventLog& events = EventLog::of(gpu_uuid);
  return Source{library, handle, gpu, std::move(gpu_uuid), gpu_instance, compute_instance, events, use.start()};
}

bool EventLog::begin(const Library& library, DeviceHandle gpu) {
  if (set_ != nullptr) return true;
  if (not_supported_) return false;
  constexpr unsigned long long wanted = event_xid | event_ecc_double_bit | event_gpu_unavailable;
  unsigned long long supported = 0;
  Calls calls;
  if (!library.nvmlEventSetWait_v2 || !library.nvmlDeviceRegisterEvents ||
      !calls.ok(library.nvmlDeviceGetSupportedEventTypes, gpu, &supported) || (supported & wanted) == 0) {
    not_supported_ = calls.fatal() == success;
    return false;
  }
  if (!calls.ok(library.nvmlEventSetCreate, &set_)) return false;
  if (calls.ok(library.nvmlDeviceRegisterEvents, gpu, supported & wanted, set_)) return true;
  calls.ok(library.nvmlEventSetFree, set_);
  set_ = nullptr;
  return false;
}

Code EventLog::fetch(const Source& source, TimePoint now) {
  const Library& library = source.library;
  if (start_ != source.start) set_ = nullptr;  // the event set became invalid when the library was restarted
  start_ = source.start;
  if (!begin(library, source.gpu)) return success;
  for (std::size_t fetched = 0; fetched < events_kept; ++fetched) {
    EventRecord record{};
    const Code code = library.nvmlEventSetWait_v2(set_, &record, /*timeout_ms=*/0);
    if (code == timed_out) return success;
    if (code != success) {
      // The next call creates a new event set.
      if (library.nvmlEventSetFree) library.nvmlEventSetFree(set_);
      set_ = nullptr;
      return code == gpu_is_lost || code == reset_required ? code : success;
    }
    const auto kind = record.type == event_xid              ? DeviceEvent::Kind::xid
                      : record.type == event_ecc_double_bit ? DeviceEvent::Kind::ecc_error
                                                            : DeviceEvent::Kind::unavailable;
    const auto number = kind == DeviceEvent::Kind::xid ? static_cast<std::uint32_t>(record.data) : 0;
    entries_.push_back({{kind, number, now}, record.gpu_instance, record.compute_instance});
    if (entries_.size() > events_kept) entries_.pop_front();
    ++end_;
  }
  return success;
}

Code EventLog::read(const Source& source, TimePoint now, std::optional<std::uint64_t>& next,
                    std::vector<DeviceEvent>& into) {
  const std::lock_guard lock(mutex_);
  if (!next) next = end_;
  const Code code = fetch(source, now);
  const auto concerns = [](unsigned theirs, unsigned ours) {
    return theirs == whole_gpu || ours == whole_gpu || theirs == ours;
  };
  const std::uint64_t first = end_ - entries_.size();
  for (std::uint64_t i = std::max(*next, first); i < end_; ++i) {
    const Entry& entry = entries_[static_cast<std::size_t>(i - first)];
    if (concerns(entry.gpu_instance, source.gpu_instance) && concerns(entry.compute_instance, source.compute_instance))
      into.push_back(entry.event);
  }
  next = end_;
  return code;
}

}  // namespace berth::nvml
