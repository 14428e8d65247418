#include "berth/xid.hpp"

#include <algorithm>
#include <array>

namespace berth {
namespace {

// NVIDIA's Xid Catalog, docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html:
// what happened, and the immediate action it names.
constexpr std::string_view catalog = "NVIDIA Xid Catalog";
// Numbers that NVIDIA's device plugin for Kubernetes treats as application errors,
// github.com/NVIDIA/k8s-device-plugin, internal/rm/health.go.
constexpr std::string_view plugin = "NVIDIA Xid Catalog; NVIDIA k8s-device-plugin";
// docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt
constexpr std::string_view memory = "NVIDIA Xid Catalog; NVIDIA GPU Memory Error Management";

constexpr std::string_view fix_program = "look for the fault in the program, with compute-sanitizer";
constexpr std::string_view restart_work = "start the work again; if it recurs with other work, test the device";
constexpr std::string_view reset = "let its work end, then reset the GPU; if it recurs, have it repaired";
constexpr std::string_view wait_for_driver = "continue; the driver reports a recovery action if the GPU needs a reset";
constexpr std::string_view ignore = "nothing";

using enum Blame;

constexpr std::array meanings{
    XidMeaning{8, "a channel of the GPU stopped", unclear, restart_work, catalog},
    XidMeaning{11, "the GPU received invalid commands", task, fix_program, catalog},
    XidMeaning{13, "a kernel performed an illegal operation", task, fix_program, plugin},
    XidMeaning{14, "an error was injected for a test", none, ignore, catalog},
    XidMeaning{25, "the GPU received commands that are not allowed", task, fix_program, catalog},
    XidMeaning{31, "a kernel used an address that is not mapped", task, fix_program, plugin},
    XidMeaning{32, "commands to the GPU were corrupted", unclear,
               "start the work again; if it recurs, check the GPU's seat and PCIe link", catalog},
    XidMeaning{37, "the GPU's firmware received an unknown call", unclear, wait_for_driver, catalog},
    XidMeaning{38, "a watchdog of the GPU's firmware expired", unclear, wait_for_driver, catalog},
    XidMeaning{39, "a copy engine failed", unclear, restart_work, catalog},
    XidMeaning{40, "a copy engine failed", unclear, restart_work, catalog},
    XidMeaning{41, "a copy engine failed", unclear, restart_work, catalog},
    XidMeaning{43, "a program stopped because of its own fault", task, fix_program, plugin},
    XidMeaning{44, "a fault during a context switch of the GPU", unclear, wait_for_driver, catalog},
    XidMeaning{45, "a program was stopped and its work removed", task,
               "find out why it stopped: a signal, or an error before this one", plugin},
    XidMeaning{46, "the GPU stopped and did not answer in time", device, reset, catalog},
    XidMeaning{48, "an uncorrectable memory error", device, reset, memory},
    XidMeaning{54, "the board has no auxiliary power", device, "connect the power cable of the board", catalog},
    XidMeaning{60, "the video processor failed", unclear, restart_work, catalog},
    XidMeaning{62, "a controller inside the GPU halted", device, reset, catalog},
    XidMeaning{63, "a faulty row of memory was marked for replacement", none,
               "reset the GPU at the next opportunity, which puts the spare row in use", memory},
    XidMeaning{64, "a faulty row of memory could not be replaced", device, reset, memory},
    XidMeaning{66, "the driver performed an illegal operation", unclear, wait_for_driver, catalog},
    XidMeaning{67, "the driver performed an illegal operation", unclear, wait_for_driver, catalog},
    XidMeaning{68, "a video decoder failed", task, restart_work, plugin},
    XidMeaning{69, "the GPU received a command of the wrong class", task, fix_program, catalog},
    XidMeaning{70, "a copy engine failed", unclear, restart_work, catalog},
    XidMeaning{71, "a copy engine failed", unclear, restart_work, catalog},
    XidMeaning{72, "a copy engine failed", unclear, restart_work, catalog},
    XidMeaning{74, "an NVLink failed", device,
               "see `nvidia-smi nvlink --errorcounters`; reset both ends, and have the link repaired if it recurs",
               catalog},
    XidMeaning{75, "a copy engine failed", unclear, restart_work, catalog},
    XidMeaning{76, "a copy engine failed", unclear, restart_work, catalog},
    XidMeaning{77, "a copy engine failed", unclear, restart_work, catalog},
    XidMeaning{78, "a virtual GPU did not start", none, "update the driver of host and guest", catalog},
    XidMeaning{xid_fallen_off_the_bus, "the GPU fell off the bus", device,
               "reboot; if it recurs, check its seat, power and PCIe link", catalog},
    XidMeaning{80, "data sent to the GPU was corrupted", unclear, restart_work, catalog},
    XidMeaning{82, "a JPEG decoder failed", task, restart_work, catalog},
    XidMeaning{83, "a video decoder failed", task, restart_work, catalog},
    XidMeaning{84, "a video decoder failed", task, restart_work, catalog},
    XidMeaning{85, "a copy engine failed", unclear, restart_work, catalog},
    XidMeaning{86, "the optical-flow engine failed", task, restart_work, catalog},
    XidMeaning{88, "a video decoder failed", task, restart_work, catalog},
    XidMeaning{89, "a video decoder failed", task, restart_work, catalog},
    XidMeaning{92, "many memory errors were corrected", none, "test the device at the next opportunity", catalog},
    XidMeaning{93, "the limit on writes to the GPU's InfoROM was reached", none, "clear the limit with nvflash",
               catalog},
    XidMeaning{94, "an uncorrectable memory error hit one program, which was stopped", unclear,
               "start that work again; reset the GPU at the next opportunity", memory},
    XidMeaning{95, "an uncorrectable memory error could not be confined to one program", device, reset, memory},
    XidMeaning{96, "a video decoder failed", task, restart_work, catalog},
    XidMeaning{97, "a video decoder failed", task, restart_work, catalog},
    XidMeaning{98, "a video decoder failed", task, restart_work, catalog},
    XidMeaning{99, "a JPEG decoder failed", task, restart_work, catalog},
    XidMeaning{100, "a JPEG decoder failed", task, restart_work, catalog},
    XidMeaning{101, "a JPEG decoder failed", task, restart_work, catalog},
    XidMeaning{102, "a JPEG decoder failed", task, restart_work, catalog},
    XidMeaning{103, "a JPEG decoder failed", task, restart_work, catalog},
    XidMeaning{104, "a JPEG decoder failed", task, restart_work, catalog},
    XidMeaning{105, "a JPEG decoder failed", task, restart_work, catalog},
    XidMeaning{106, "a test message", none, ignore, catalog},
    XidMeaning{107, "a test message", none, ignore, catalog},
    // The catalog advises a reset; if one is needed, the recovery action reports it as well.
    XidMeaning{109, "a context could not be switched off the GPU in time", task,
               "look for a kernel that never ends; the driver reports a recovery action if the GPU needs a reset",
               plugin},
    XidMeaning{110, "a safety circuit of the GPU tripped", device,
               "undo recent changes of the hardware and switch the machine off and on", catalog},
    XidMeaning{119, "the GPU's firmware did not answer in time", device, reset, catalog},
    XidMeaning{120, "the GPU's firmware failed", device, reset, catalog},
    XidMeaning{121, "errors on the link to the processor were corrected", none, "reset the GPU at the next opportunity",
               catalog},
    XidMeaning{136, "an NVLink did not come up", device, reset, catalog},
    XidMeaning{137, "a kernel accessed memory of another GPU without permission", task, fix_program, catalog},
    XidMeaning{139, "the optical-flow engine failed", task, restart_work, catalog},
    XidMeaning{140, "an uncorrectable memory error could not be recorded", device, reset, catalog},
    XidMeaning{141, "a fast path of the driver failed", unclear, wait_for_driver, catalog},
    XidMeaning{143, "the GPU did not start", device, reset, catalog},
    // The details are only in the kernel log; some of these are harmless.
    XidMeaning{144, "an NVLink reported an error", unclear, wait_for_driver, catalog},
    XidMeaning{145, "an NVLink reported an error", unclear, wait_for_driver, catalog},
    XidMeaning{146, "an NVLink reported an error", unclear, wait_for_driver, catalog},
    XidMeaning{147, "an NVLink reported an error", unclear, wait_for_driver, catalog},
    XidMeaning{148, "an NVLink reported an error", unclear, wait_for_driver, catalog},
    XidMeaning{149, "an NVLink reported an error", unclear, wait_for_driver, catalog},
    XidMeaning{150, "an NVLink reported an error", unclear, wait_for_driver, catalog},
    XidMeaning{151, "the keys of confidential computing could not be renewed", device, "restart the virtual machine",
               catalog},
    XidMeaning{154, "the recovery action of the GPU has changed", none,
               "see the recovery action, which is reported separately", catalog},
    XidMeaning{155, "an NVLink was taken down", unclear, wait_for_driver, catalog},
    XidMeaning{156, "a faulty part of the GPU was marked for replacement", device, reset, catalog},
    XidMeaning{157, "a faulty part of the GPU could not be replaced", unclear, "have the GPU repaired if it recurs",
               catalog},
    XidMeaning{158, "the GPU did not answer in time and cannot continue", device, reset, catalog},
    XidMeaning{160, "a faulty memory channel was marked for replacement", none, "reset the GPU at the next opportunity",
               catalog},
    XidMeaning{161, "a faulty memory channel could not be replaced", unclear, "have the GPU repaired if it recurs",
               catalog},
    XidMeaning{162, "power smoothing is on again", none, ignore, catalog},
    XidMeaning{163, "power smoothing was switched off", none, "check the cooling", catalog},
    XidMeaning{164, "the power-smoothing circuit is nearly worn out", none, "plan its replacement", catalog},
    XidMeaning{165, "the power-smoothing circuit is worn out", none, "replace it if power swings matter", catalog},
    XidMeaning{167, "the GPU did not answer over PCIe in time", device, reset, catalog},
    XidMeaning{168, "some memory of the GPU cannot be used", none, "switch ECC on", catalog},
    XidMeaning{169, "a controller inside the GPU halted", device, reset, catalog},
    XidMeaning{171, "an uncorrectable error in the GPU's memory", device, reset, catalog},
    XidMeaning{172, "an uncorrectable error in a memory inside the chip", device, reset, catalog},
};
static_assert(std::is_sorted(meanings.begin(), meanings.end(),
                             [](const XidMeaning& a, const XidMeaning& b) { return a.number < b.number; }));

Blame blame_of(RecoveryAction action) noexcept {
  switch (action) {
    case RecoveryAction::none: return none;
    case RecoveryAction::drain_peers: return unclear;
    case RecoveryAction::reset:
    case RecoveryAction::reboot:
    case RecoveryAction::drain_and_reset: return device;
  }
  return unclear;
}

}  // namespace

std::string_view to_string(Blame blame) noexcept {
  switch (blame) {
    case task: return "task";
    case device: return "device";
    case unclear: return "unclear";
    case none: return "none";
  }
  return "unclear";
}

std::span<const XidMeaning> xid_meanings() noexcept { return meanings; }

const XidMeaning* find_xid(std::uint32_t number) noexcept {
  const auto found = std::lower_bound(meanings.begin(), meanings.end(), number,
                                      [](const XidMeaning& row, std::uint32_t wanted) { return row.number < wanted; });
  return found != meanings.end() && found->number == number ? &*found : nullptr;
}

Blame blame_of(const DeviceEvent& event) noexcept {
  switch (event.kind) {
    case DeviceEvent::Kind::xid: {
      const XidMeaning* meaning = find_xid(event.code);
      return meaning ? meaning->blame : unclear;
    }
    case DeviceEvent::Kind::recovery_action: return blame_of(static_cast<RecoveryAction>(event.code));
    case DeviceEvent::Kind::ecc_error:
    case DeviceEvent::Kind::unavailable: return device;
  }
  return unclear;
}

std::string reset_advice(std::string_view where) {
  const std::string_view whole = where.substr(0, where.find('/'));
  return "stop what uses the GPU, then `nvidia-smi --gpu-reset" +
         (whole.starts_with("GPU-") ? " -i " + std::string(whole) : std::string()) + "`, or reboot";
}

Error error_of(const DeviceEvent& event, std::string where) {
  Error error{ErrorCode::unavailable, {}, {}, std::move(where)};
  switch (event.kind) {
    case DeviceEvent::Kind::xid: {
      const XidMeaning* meaning = find_xid(event.code);
      if (event.code == xid_fallen_off_the_bus) error.code = ErrorCode::device_lost;
      error.message = "the driver reported Xid " + std::to_string(event.code) +
                      (meaning ? ": " + std::string(meaning->words) : ", whose meaning is not known");
      error.advice = meaning ? meaning->advice : "look the number up in NVIDIA's Xid Catalog";
      if (meaning && meaning->advice == reset) error.advice = reset_advice(error.where);
      error.driver = DriverError{static_cast<int>(event.code), "Xid"};
      break;
    }
    case DeviceEvent::Kind::recovery_action:
      switch (static_cast<RecoveryAction>(event.code)) {
        case RecoveryAction::none: error.message = "the driver no longer requires a recovery action"; break;
        case RecoveryAction::reboot:
          error.message = "the driver requires a reboot of the machine";
          error.advice = "let the work on the machine end, then reboot it";
          break;
        case RecoveryAction::drain_peers:
          error.message = "the driver forbids work that uses this GPU together with others";
          error.advice = "let such work end; work on this GPU alone can continue";
          break;
        default: error.message = "the driver requires a reset of the GPU"; error.advice = reset_advice(error.where);
      }
      break;
    case DeviceEvent::Kind::ecc_error:
      error.message = "the driver reported an uncorrectable memory error";
      error.advice = reset_advice(error.where);
      break;
    case DeviceEvent::Kind::unavailable:
      error.message = "the driver reported that the GPU cannot be used";
      error.advice = reset_advice(error.where);
      break;
  }
  return error;
}

}  // namespace berth
