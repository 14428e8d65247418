// Everything that is drawn from one seed: devices, their scripted faults, and all other random
// choices of a test.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "berth/random.hpp"
#include "device/simulated/backend.hpp"
#include "pool/test_fault_checker.hpp"

namespace berth::pool {

constexpr Duration faults_end = std::chrono::seconds(20);  // no scripted fault begins or lasts later
constexpr std::uint64_t fault_memory_bytes = 1 << 20;

class FaultScript {
 protected:
  explicit FaultScript(std::uint64_t seed) : random_(seed) {}

  std::uint64_t below(std::uint64_t bound) { return random_.below(bound); }
  bool chance(std::uint64_t percent) { return below(100) < percent; }
  Duration between(Duration least, Duration most) {
    return least + Duration(static_cast<std::int64_t>(below(static_cast<std::uint64_t>((most - least).count()))));
  }
  std::vector<simulated::SimulatedSpec> make_specs(std::vector<Account>& accounts) {
    std::vector<simulated::SimulatedSpec> specs;
    const std::size_t count = 4 + below(fault_devices_max - 3);
    while (specs.size() < count) {
      // One in five is a device in two or three parts.
      const std::size_t parts = std::min(count - specs.size(), chance(20) ? 2 + below(2) : 1);
      const std::string name = "sim-" + std::to_string(specs.size());
      for (std::size_t part = 0; part < parts; ++part) {
        simulated::SimulatedSpec spec;
        spec.id = parts > 1 ? name + "." + std::to_string(part) : name;
        if (parts > 1) spec.parent = name;
        spec.memory_bytes_total = fault_memory_bytes;
        spec.concurrency = static_cast<std::uint32_t>(1 + below(4));
        spec.speed = 0.5 + static_cast<double>(below(8)) / 2;
        Account account;
        account.id = DeviceId(spec.id);
        account.domain = accounts.size() - part;
        for (std::uint64_t faults = below(4); faults > 0; --faults) add_fault(spec, account);
        specs.push_back(std::move(spec));
        accounts.push_back(std::move(account));
      }
    }
    return specs;
  }

  void add_fault(simulated::SimulatedSpec& spec, Account& account) {
    using namespace std::chrono_literals;
    Fault fault;
    const auto by_time = [&](Duration longest) {
      fault.trigger = Fault::Trigger::time;
      fault.at_time = between(1s, faults_end - longest);
      fault.lasting = between(50ms, longest);
    };
    const auto by_count = [&](Fault::Trigger trigger, std::uint64_t most) {
      fault.trigger = trigger;
      fault.at = 1 + below(40);
      fault.times = 1 + below(most);
    };
    switch (below(11)) {
      case 0:
        fault.kind = Fault::Kind::error;
        by_count(Fault::Trigger::launch, 12);
        break;
      case 1:
        fault.kind = Fault::Kind::error;
        by_time(15s);
        break;
      case 2:
        fault.kind = Fault::Kind::hang;
        by_count(Fault::Trigger::launch, 2);
        break;
      case 3:
        fault.kind = Fault::Kind::lost;
        by_count(Fault::Trigger::launch, 1);
        break;
      case 4:
      case 5:
        fault.kind = Fault::Kind::lost;
        by_time(12s);
        if (chance(30)) {
          fault.lasting.reset();
          account.dies_for_good = true;
        }
        account.deaths.push_back(fault.at_time);
        break;
      case 6:
        fault.kind = Fault::Kind::out_of_memory;
        by_count(Fault::Trigger::launch, 5);
        break;
      case 7:
        fault.kind = Fault::Kind::sample_silent;
        by_time(10s);
        break;
      case 8:
        fault.kind = Fault::Kind::sample_hang;
        by_count(Fault::Trigger::sample, 1);
        break;
      default: return add_event(spec);
    }
    spec.faults.push_back(fault);
  }

  void add_event(simulated::SimulatedSpec& spec) {
    using namespace std::chrono_literals;
    const auto xid = [&](std::uint32_t number) {
      spec.events.push_back({between(1s, faults_end), DeviceEvent::Kind::xid, number});
    };
    switch (below(5)) {
      case 0: return xid(std::to_array<std::uint32_t>({13, 31, 43, 45, 68, 109})[below(6)]);
      case 1: return xid(std::to_array<std::uint32_t>({48, 62, 64, 74, 95, 119})[below(6)]);
      case 2: return xid(79);
      case 3: return xid(std::to_array<std::uint32_t>({8, 94})[below(2)]);
      default: break;
    }
    const Duration begin = between(1s, faults_end / 2);
    const auto action = [&](Duration when, RecoveryAction what) {
      spec.events.push_back({when, DeviceEvent::Kind::recovery_action, static_cast<std::uint32_t>(what)});
    };
    action(begin, chance(70) ? RecoveryAction::reset : RecoveryAction::drain_peers);
    action(begin + between(1s, 15s), RecoveryAction::none);
  }

 private:
  using Fault = simulated::SimulatedFault;
  SeededRandom random_;
};

}  // namespace berth::pool
