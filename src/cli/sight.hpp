// The devices of this machine as a decision sees them: what the drivers list,
// what they say now, and whose memory is in use. The processor stands in for an
// accelerator only where there is none, or where it is asked for by name.
#pragma once

#include <memory>
#include <optional>

#include "cli/devices.hpp"
#include "pool/reservation.hpp"

namespace berth::cli {

// The rows with what the ledger says about them; processes of its entries count
// as Berth's. Makes no ledger where there is none, and without one changes nothing.
void add_ledger(std::vector<DeviceRow>& rows);

class Lookout {
 public:
  // An error where the back end asked for cannot be had; no_device where there is none.
  static Result<Lookout> open(const std::optional<std::string>& backend, const BackendOptions& options);
  // Asks every device, at most for look_deadline.
  Sight look();
  // `named`: the processor counts, although there are accelerators.
  void include_fallback(bool named) { fallback_ = named; }
  const std::vector<DeviceInfo>& devices() const { return machine_.devices; }

 private:
  explicit Lookout(Machine machine);
  Machine machine_;
  std::unique_ptr<Observer> observer_;
  Topology topology_;
  bool fallback_ = false;
};

}  // namespace berth::cli
