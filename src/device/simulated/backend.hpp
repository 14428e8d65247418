// Simulated devices with real memory, scripted time and scripted faults, for testing
// without hardware. Copies and kernels with a host form run at once on the calling
// thread; their work is done when the clock reaches the simulated finish time. With a
// FakeClock nothing sleeps; with the real clock waiting takes real time.
//
// A launch takes launch_time + items * item_ns / speed, work with a cost takes
// launch_time + cost * 1 ms / speed, and a copy takes bytes / copy_bytes_per_second. A
// device runs `concurrency` launches at a time, in order of arrival, and one copy in
// each direction; a copy between buffers counts as a copy to the device.
//
// Devices of one back end with the same memory_domain share its bytes, those
// with the same fault_domain are lost together.
#pragma once

#include <memory>
#include <vector>

#include "berth/device.hpp"
#include "device/simulated/spec.hpp"

namespace berth::simulated {

// A wait without a deadline times out after this much time on the device's clock.
constexpr Duration simulated_wait_limit = std::chrono::minutes(5);

// The clock must outlive the device. An invalid spec is an assertion failure.
std::shared_ptr<Device> make_simulated_device(SimulatedSpec spec, Clock& clock);
std::unique_ptr<Backend> make_simulated_backend(std::vector<SimulatedSpec> specs, Clock& clock);

// Enqueues work of this cost as one launch; a closure calls it to set its own cost.
// not_supported on a stream that is not simulated.
Result<void> simulated_work(Stream& stream, double cost);

// Simulate changes from outside while a program runs. not_supported on a device that
// is not simulated.
Result<void> set_simulated_foreign_bytes(Device& device, std::uint64_t bytes);
Result<void> lose_simulated_device(Device& device);

}  // namespace berth::simulated
