// One opening of a GPU or of a part of it: its context, whether it can still be used, and a pool of
// events. The context is the GPU's primary context, which libraries on the runtime API use too; it
// is retained while the Device or anything made from it exists. A part has a green context as well,
// which only creates its streams; it is never current, because only one thread at a time could have
// it. After a fault this process cannot use the GPU again (measured: neither new contexts nor a
// reset help), so every opening of that GPU is lost at once and no further driver call is made for
// it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "berth/clock.hpp"
#include "berth/device_info.hpp"
#include "device/cuda/driver.hpp"
#include "device/cuda/geometry.hpp"

namespace berth::cuda {

class CudaStreamHandle;

// Shared by the device and every handle made from it. Thread-safe.
class CudaContext {
 public:
  // `part` are groups of one split of the GPU; empty: the whole GPU.
  static Result<std::shared_ptr<CudaContext>> open(const Driver& driver, DeviceNumber number, DeviceInfo info,
                                                   Clock& clock, std::vector<Resource> part);
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;
  ~CudaContext();

  const Driver& driver;
  const DeviceNumber number;
  const Context handle;
  const DeviceInfo info;
  const GeometryLimits limits;
  Clock& clock;
  const std::uint64_t generation;

  // Refuses new work, then waits for the streams: a copy must not run after the caller
  // has freed its memory. A stream that hangs is abandoned after ten seconds.
  void close() noexcept;

  bool lost() const noexcept { return lost_by_.load(std::memory_order_relaxed) != code_success; }
  // An error if new work is refused.
  Result<void> usable() const {
    if (!lost() && !closing_.load(std::memory_order_relaxed)) [[likely]]
      return {};
    return unusable();
  }
  // An error if enqueued work can no longer be waited for; succeeds until close() has waited for it.
  Result<void> watchable() const {
    if (!lost() && !closed_.load(std::memory_order_relaxed)) [[likely]]
      return {};
    return unusable();
  }
  // The error for a failed call; a fatal code marks the device as lost.
  Error fail(Code code, std::string_view doing);
  Error refuse(std::string message, std::string advice) const {
    return {ErrorCode::invalid_argument, std::move(message), std::move(advice), info.id.text()};
  }

  // Makes one driver call, f() -> Code, with the context current.
  template <class F>
  Result<void> call(std::string_view doing, F&& f);
  // The same for releasing resources: ignores errors and does nothing on a lost device.
  template <class F>
  void release(F&& f) noexcept;

  // Creates a stream of the GPU or of the part, inside call().
  Code create_stream(StreamHandle* stream, int level);
  Result<EventHandle> take_event();
  void give_back(EventHandle event) noexcept;

  // Lets copies from `other` go over the link between the two GPUs instead of through the host, if
  // the hardware allows it.
  void reach(const CudaContext& other);
  // Whether the driver has a pool for stream-ordered memory.
  bool has_pool();
  // Notes that this many bytes return to the pool when the stream reaches this point.
  void freed(std::uint64_t bytes, StreamHandle stream) noexcept;
  // Returns memory that streams have kept for long, and that of the pool beyond its share, to
  // the GPU. The driver does so only during its own blocking waits, which Berth does not use.
  void trim_pool() noexcept;
  // Frees what the streams have kept; unless `all`, only what has been kept for long. Returns whether there was any.
  bool free_kept(bool all) noexcept;

 private:
  friend class CudaStreamHandle;
  void add(CudaStreamHandle& stream);
  void destroy(CudaStreamHandle& stream) noexcept;
  CudaContext(const Driver& driver, DeviceNumber number, Context handle, DeviceInfo info, Clock& clock);
  Code make_part(std::vector<Resource>& groups);
  Code create_event(EventHandle* event);
  Error unusable() const;

  std::atomic<Code>& lost_by_;  // shared by everything that fails with this GPU
  std::atomic<bool> closing_{false};
  std::atomic<bool> closed_{false};
  GreenContext green_ = nullptr;    // null: the whole GPU
  Context green_handle_ = nullptr;  // green_ as a context
  std::mutex green_mutex_;          // held while green_ is used: the driver does not guard it
  std::mutex events_mutex_;         // guards idle_events_ and freed_events_
  std::vector<EventHandle> idle_events_;
  std::atomic<std::uint64_t> freed_bytes_{0};  // since the last of freed_events_
  std::vector<EventHandle> freed_events_;      // recorded after memory was freed in stream order
  std::once_flag pool_once_;
  bool has_pool_ = false;                     // set once
  std::atomic<MemoryPool> trimmed_{nullptr};  // the pool, if Berth set its share
  std::mutex reached_mutex_;                  // guards reached_
  std::set<std::uint64_t> reached_;           // generations of the contexts whose memory this one reaches
  std::mutex streams_mutex_;  // guards streams_; held while one is queried, so that it is not destroyed meanwhile
  std::set<CudaStreamHandle*> streams_;
  std::atomic<std::uint64_t> kept_bytes_{0};  // by all streams
};

// A stream of the driver. Lives as long as the Stream, or as memory that is freed in its order.
// Enqueued work still runs when it is destroyed.
//
// It keeps memory that is freed in its order for its next work: getting the two buffers of a 1080p
// frame from the driver's pool cost 3 % of the frame rate.
class CudaStreamHandle {
 public:
  CudaStreamHandle(std::shared_ptr<CudaContext> owner, StreamHandle stream);
  ~CudaStreamHandle();
  CudaStreamHandle(const CudaStreamHandle&) = delete;
  CudaStreamHandle& operator=(const CudaStreamHandle&) = delete;
  const std::shared_ptr<CudaContext> context;
  const StreamHandle handle;

  // Takes kept memory of exactly this size; 0: there is none.
  DevicePointer take_kept(std::uint64_t bytes) noexcept;
  // Frees it in the order of the stream, or keeps it.
  void free(DevicePointer pointer, std::uint64_t bytes) noexcept;
  // Frees what was kept; unless `all`, only memory that was already kept at the previous call.
  // Returns whether there was any.
  bool free_kept(bool all) noexcept;

 private:
  struct Kept {
    DevicePointer pointer;
    std::uint64_t bytes;
    bool is_old;
  };
  std::mutex mutex_;  // guards kept_
  std::vector<Kept> kept_;
};

// Makes the context current on this thread for a scope, and then restores the previous one.
class CudaCurrent {
 public:
  explicit CudaCurrent(const CudaContext& context) noexcept : CudaCurrent(context.driver, context.handle) {}
  CudaCurrent(const Driver& driver, Context context) noexcept : driver_(driver) {
    code_ = driver_.cuCtxGetCurrent(&before_);
    if (code_ != code_success || before_ == context) return;
    code_ = driver_.cuCtxPushCurrent_v2(context);
    pushed_ = code_ == code_success;
  }
  ~CudaCurrent() {
    Context popped = nullptr;
    if (pushed_ && driver_.cuCtxPopCurrent_v2(&popped) != code_success) driver_.cuCtxSetCurrent(before_);
  }
  CudaCurrent(const CudaCurrent&) = delete;
  CudaCurrent& operator=(const CudaCurrent&) = delete;
  Code code() const noexcept { return code_; }

 private:
  const Driver& driver_;
  Context before_ = nullptr;
  Code code_;
  bool pushed_ = false;
};

template <class F>
Result<void> CudaContext::call(std::string_view doing, F&& f) {
  if (Result<void> ok = usable(); !ok) return ok;
  const CudaCurrent current(*this);
  Code code = current.code();
  if (code == code_success) code = f();
  if (code != code_success) return fail(code, doing);
  return {};
}

template <class F>
void CudaContext::release(F&& f) noexcept {
  if (lost()) return;
  const CudaCurrent current(*this);
  if (current.code() == code_success) f();
}

}  // namespace berth::cuda
