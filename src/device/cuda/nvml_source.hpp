// The handle of a device in the management library, and the events that the driver
// reports for its GPU. Nothing here holds a lock that another GPU needs during a
// driver call, which may hang.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "berth/device_info.hpp"
#include "berth/telemetry.hpp"
#include "device/cuda/nvml_api.hpp"

namespace berth::nvml {

inline constexpr unsigned whole_gpu = ~0U;  // the instance number of a GPU that is not a slice

struct Source;

// While an object exists, the library is not restarted. Handles belong to one start of it: those of an earlier one
// are no longer valid.
class LibraryUse {
 public:
  LibraryUse();
  std::uint64_t start() const { return start_; }

 private:
  std::shared_lock<std::shared_mutex> lock_;
  std::uint64_t start_;
};
// Restarts the library, which otherwise keeps reporting a GPU as lost after it works again. Does nothing while
// another call uses the library. A thread that has a LibraryUse must not call it.
void start_library_again();

// The events that the driver has reported for one GPU, for all readers in this process.
// Each GPU has its own event set, so that reading never waits for another GPU. Never
// freed: the driver may report until the process ends.
class EventLog {
 public:
  static EventLog& of(const std::string& gpu_uuid) {
    static std::mutex mutex;  // guards logs, whose elements never move
    static auto& logs = *new std::map<std::string, EventLog>;
    const std::lock_guard lock(mutex);
    return logs[gpu_uuid];
  }

  // Appends the events since `next` that concern the slice, or all events if the
  // instances are whole_gpu. Absent `next`: events from now on.
  Code read(const Source& source, TimePoint now, std::optional<std::uint64_t>& next, std::vector<DeviceEvent>& into);

 private:
  struct Entry {
    DeviceEvent event;
    unsigned gpu_instance, compute_instance;
  };
  Code fetch(const Source& source, TimePoint now);
  bool begin(const Library& library, DeviceHandle gpu);

  std::mutex mutex_;  // guards everything below; held during calls to the driver about this GPU
  EventSet set_ = nullptr;
  std::uint64_t start_ = 0;  // that the set belongs to
  bool not_supported_ = false;
  std::deque<Entry> entries_;
  std::uint64_t end_ = 0;  // number of the next entry
};

// The handles that the values of a device are read from. A slice has its own memory and
// processes; power, temperatures and events are those of its GPU.
struct Source {
  const Library& library;
  DeviceHandle handle = nullptr;
  DeviceHandle gpu = nullptr;
  std::string gpu_uuid;
  unsigned gpu_instance = whole_gpu;
  unsigned compute_instance = whole_gpu;
  EventLog& events;
  std::uint64_t start = 0;  // of the library

  bool is_slice() const { return handle != gpu; }
};

// The UUID of the GPU or slice; a partition of a GPU has that of the GPU.
inline std::string uuid_of(const DeviceId& id) { return id.text().substr(0, id.text().find('/')); }

Result<Source> find_source(const std::string& uuid, const LibraryUse& use);

}  // namespace berth::nvml
