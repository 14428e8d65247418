// Machines made by seed, each with one thing wrong that is known because it was put there:
// some devices that would serve, had it not been for that one thing, among others that are
// kept out by two or three things of their own, or do not report what they have free.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "berth/placement.hpp"
#include "berth/random.hpp"

namespace berth::bench {

constexpr std::uint64_t gib = std::uint64_t{1} << 30;

struct Machine {
  std::deque<DeviceInfo> infos;
  std::deque<DeviceView> views;

  // A device that serves whatever these situations ask for.
  std::size_t add(std::uint64_t total) {
    const std::size_t i = infos.size();
    DeviceInfo& info = infos.emplace_back();
    info.id = DeviceId("GPU-" + std::to_string(1000 + splitmix64(i) % 9000) + "-" + std::to_string(i));
    info.backend = "cuda";
    info.memory_bytes_total = total;
    info.capability = Capability{9, 0};
    info.features = {"ptx", "stream_priority"};
    info.labels = {{"zone", "a"}};
    DeviceView& view = views.emplace_back();
    view.id_order = static_cast<std::uint32_t>(i);
    view.memory_bytes_free = total;
    view.sample = SampleState::fresh;
    return i;
  }
  std::vector<DeviceView> seen() const {
    std::vector<DeviceView> out(views.begin(), views.end());
    for (std::size_t i = 0; i < out.size(); ++i) out[i].info = &infos[i];
    return out;
  }
};

struct Situation {
  Machine machine;
  Requirements requirements;
  std::size_t count = 1;
  std::vector<std::size_t> targets;  // would serve, but for the cause
  std::vector<int> spoils;           // what may be wrong with other devices, see spoil()
  SeededRandom random;

  Situation(std::uint64_t seed, std::vector<int> kinds) : spoils(std::move(kinds)), random(splitmix64(seed)) {
    requirements.memory_bytes_min = (4 + random.below(28)) * gib + random.below(gib);
    requirements.capability_min = Capability{static_cast<std::int32_t>(7 + random.below(3)), 0};
    if (random.below(2) == 0) requirements.features = {"ptx"};
    if (random.below(2) == 0) requirements.labels = {{"zone", "a"}};
    if (random.below(2) == 0) requirements.backends = {"cuda"};
  }
  std::uint64_t need() const { return requirements.memory_bytes_min; }
  DeviceView& view(std::size_t i) { return machine.views[i]; }
  DeviceInfo& info(std::size_t i) { return machine.infos[i]; }
  std::size_t between(std::size_t low, std::size_t high) { return low + random.below(high - low + 1); }

  // Room for the request, and for no second one of its size.
  void add_targets(std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) targets.push_back(machine.add(need() + random.below(need() / 2)));
  }
  template <class Change>
  void each_target(Change change) {
    for (const std::size_t i : targets) change(view(i), info(i));
  }
  // Leaves each target so little that all of them together have too little.
  std::uint64_t crumbs() { return random.below(need() / targets.size()); }

  // Two or three things wrong, of different filters, so that lifting one of them
  // changes nothing.
  void add_noise(std::size_t n) {
    // This one may have the room or not, so it is not a better cause.
    if (random.below(3) == 0) view(machine.add(need() + random.below(64 * gib))).memory_bytes_free = OptionalU64();
    for (std::size_t added = 0; added < n; ++added) {
      const std::size_t i = machine.add(need() + random.below(64 * gib));
      std::vector<int> kinds = spoils;
      for (std::size_t wrong = between(2, 3); wrong > 0; --wrong) {
        const auto picked = kinds.begin() + static_cast<std::ptrdiff_t>(random.below(kinds.size()));
        spoil(i, *picked);
        kinds.erase(picked);
      }
    }
  }
  void spoil(std::size_t i, int kind) {
    switch (kind) {
      case 0: view(i).intent = random.below(2) == 0 ? Intent::cordoned : Intent::draining; break;
      case 1: view(i).health = random.below(2) == 0 ? Health::lost : Health::quarantined; break;
      case 2: view(i).sample = SampleState::stale; break;
      case 3: info(i).capability = Capability{5, 2}; break;
      case 4: requirements.avoid.push_back(info(i).id); break;
      case 5: view(i).held_exclusively = true; break;
      default:
        if (random.below(2) == 0) {
          view(i).memory_bytes_free = random.below(need());
        } else {
          view(i).memory_bytes_promised = *view(i).memory_bytes_free - random.below(need());
        }
    }
  }
};

struct Kind {
  std::string_view name;
  Cause cause;
  std::string_view word;  // of the first sentence
  void (*inject)(Situation&);
  bool for_command = false;  // simulated devices and the command's options can express it
};

// One thing wrong with every device that would serve.
template <auto change>
void all_targets(Situation& s) {
  s.add_targets(s.between(1, 4));
  s.each_target([&](DeviceView& view, DeviceInfo& info) { change(s, view, info); });
}
// A group of which some members are there and the others have one thing wrong.
template <auto change>
void some_of_a_group(Situation& s) {
  const std::size_t there = s.between(1, 4), missing = s.between(1, 3);
  s.count = there + missing;
  s.add_targets(s.count);
  for (std::size_t i = 0; i < missing; ++i) change(s, s.view(s.targets[i]), s.info(s.targets[i]));
}

constexpr auto promise_it = [](Situation& s, DeviceView& view, DeviceInfo&) {
  view.memory_bytes_promised = *view.memory_bytes_free - s.crumbs();
};
constexpr auto use_it = [](Situation& s, DeviceView& view, DeviceInfo&) { view.memory_bytes_free = s.crumbs(); };
constexpr auto cordon = [](Situation&, DeviceView& view, DeviceInfo&) { view.intent = Intent::cordoned; };
constexpr auto drain = [](Situation&, DeviceView& view, DeviceInfo&) { view.intent = Intent::draining; };
constexpr auto quarantine = [](Situation&, DeviceView& view, DeviceInfo&) { view.health = Health::quarantined; };
constexpr auto lose = [](Situation&, DeviceView& view, DeviceInfo&) { view.health = Health::lost; };
constexpr auto try_out = [](Situation& s, DeviceView& view, DeviceInfo&) {
  view.health = Health::probation;
  view.in_flight = static_cast<std::uint32_t>(s.between(1, 3));
};
constexpr auto age = [](Situation&, DeviceView& view, DeviceInfo&) { view.sample = SampleState::stale; };
constexpr auto never_sampled = [](Situation&, DeviceView& view, DeviceInfo&) {
  view.sample = SampleState::unknown;
  view.memory_bytes_free = OptionalU64();
};
constexpr auto old_model = [](Situation& s, DeviceView&, DeviceInfo& info) {
  s.requirements.capability_min = Capability{9, 0};
  info.capability = Capability{8, static_cast<std::int32_t>(s.between(0, 9))};
};
constexpr auto lack_feature = [](Situation& s, DeviceView&, DeviceInfo&) {
  s.requirements.features.insert("multicast");
};
constexpr auto lack_label = [](Situation& s, DeviceView&, DeviceInfo& info) {
  s.requirements.labels["rack"] = "r1";
  if (s.random.below(2) == 0) info.labels["rack"] = "r2";
};
constexpr auto other_back_end = [](Situation& s, DeviceView&, DeviceInfo& info) {
  s.requirements.backends = {"cuda"};
  info.backend = s.random.below(2) == 0 ? "opencl" : "host";
};
constexpr auto avoid_it = [](Situation& s, DeviceView&, DeviceInfo& info) { s.requirements.avoid.push_back(info.id); };
constexpr auto hold = [](Situation& s, DeviceView& view, DeviceInfo&) {
  s.requirements.exclusive = true;
  view.holders = static_cast<std::uint32_t>(s.between(1, 5));
};
constexpr auto hold_alone = [](Situation&, DeviceView& view, DeviceInfo&) {
  view.holders = 1;
  view.held_exclusively = true;
};
constexpr auto keep_free = [](Situation&, DeviceView& view, DeviceInfo&) { view.kept_for_waiting = true; };
// Asked for whole, with room for the request beside what is on it.
constexpr auto occupy = [](Situation& s, DeviceView& view, DeviceInfo& info) {
  s.requirements.whole = true;
  if (s.random.below(2) == 0) {
    view.other_processes = static_cast<std::uint32_t>(s.between(1, 3));
  } else {
    info.memory_bytes_total = *view.memory_bytes_free + 4 * gib;
  }
};
constexpr auto silence = [](Situation& s, DeviceView& view, DeviceInfo&) {
  s.requirements.whole = true;
  view.sample = SampleState::unknown;
};
constexpr auto hide_total = [](Situation& s, DeviceView&, DeviceInfo& info) {
  s.requirements.memory_share = 0.5;
  info.memory_bytes_total.reset();
};

// Idle devices beside one that was asked for by name and has one thing wrong.
template <auto change>
void pinned_to_one(Situation& s) {
  s.add_targets(s.between(2, 5));
  const std::size_t target = s.targets[s.random.below(s.targets.size())];
  s.requirements.only = {s.info(target).id};
  change(s, s.view(target), s.info(target));
}

inline const Kind kinds[] = {
    {"full by promises", Cause::memory_promised, "promised", all_targets<promise_it>},
    {"full by processes", Cause::memory_in_use, "processes use the memory", all_targets<use_it>, true},
    {"fragmented", Cause::memory_fragmented, "together",
     [](Situation& s) {
       s.add_targets(s.between(2, 6));
       s.each_target([&](DeviceView& view, DeviceInfo&) {
         // At least half of what is needed on each, never all of it.
         const std::uint64_t left = s.need() / 2 + 1 + s.random.below(s.need() / 2 - 2);
         if (s.random.below(2) == 0) {
           view.memory_bytes_free = left;
         } else {
           view.memory_bytes_promised = *view.memory_bytes_free - left;
         }
       });
     }},
    {"more than any has", Cause::memory_too_small, "in total",
     [](Situation& s) {
       s.add_targets(s.between(1, 4));
       s.requirements.memory_bytes_min *= 200;
     },
     true},
    {"cordoned", Cause::cordoned, "cordoned", all_targets<cordon>, true},
    {"draining", Cause::draining, "draining", all_targets<drain>, true},
    {"quarantined", Cause::quarantined, "quarantined", all_targets<quarantine>},
    {"lost", Cause::lost, "lost", all_targets<lose>},
    {"on probation and busy", Cause::probation, "on probation", all_targets<try_out>},
    {"stale", Cause::stale, "has not reported its load", all_targets<age>},
    {"never sampled", Cause::memory_unknown, "does not report free memory", all_targets<never_sampled>},
    {"share of an unknown total", Cause::memory_unknown, "does not report its memory size", all_targets<hide_total>},
    {"wrong capability", Cause::capability, "capability 9.0", all_targets<old_model>, true},
    {"missing feature", Cause::feature, "multicast", all_targets<lack_feature>, true},
    {"missing label", Cause::label, "rack", all_targets<lack_label>, true},
    {"wrong back end", Cause::backend, "needs cuda", all_targets<other_back_end>},
    {"avoid leaves none", Cause::avoided, "excluded by --avoid", all_targets<avoid_it>, true},
    {"pinned to nothing here", Cause::pinned, "not among the requested devices",
     [](Situation& s) {
       s.add_targets(s.between(1, 4));
       s.requirements.only = {DeviceId("GPU-gone")};
     }},
    {"pinned to a full device", Cause::memory_in_use, "processes use the memory", pinned_to_one<use_it>, true},
    {"pinned to a promised device", Cause::memory_promised, "promised", pinned_to_one<promise_it>},
    {"pinned to a cordoned device", Cause::cordoned, "cordoned", pinned_to_one<cordon>, true},
    {"exclusive but shared", Cause::held, "held by", all_targets<hold>},
    {"held exclusively", Cause::held_exclusively, "held exclusively", all_targets<hold_alone>},
    {"kept for another", Cause::kept, "reserved for a request", all_targets<keep_free>},
    {"group: some kept", Cause::kept, "reserved for a request", some_of_a_group<keep_free>},
    {"whole but in use", Cause::occupied, "in use", all_targets<occupy>},
    {"whole but silent", Cause::silent, "does not answer", all_targets<silence>},
    {"group: some in use", Cause::occupied, "in use", some_of_a_group<occupy>},
    {"no devices", Cause::too_few_devices, "no devices", [](Situation&) {}},
    {"group too large for the machine", Cause::too_few_devices, "were requested",
     [](Situation& s) {
       s.add_targets(s.between(1, 4));
       s.count = 0;  // more than there are; see make()
     },
     true},
    {"group: some lost", Cause::lost, "lost", some_of_a_group<lose>},
    {"group: some quarantined", Cause::quarantined, "quarantined", some_of_a_group<quarantine>},
    {"group: some cordoned", Cause::cordoned, "cordoned", some_of_a_group<cordon>, true},
    {"group split by memory in use", Cause::memory_in_use, "processes use the memory", some_of_a_group<use_it>, true},
    {"group split by promises", Cause::memory_promised, "promised", some_of_a_group<promise_it>},
    {"parts share one memory", Cause::memory_shared, "share its memory",
     [](Situation& s) {
       // Room for one of them, and for one more elsewhere at most.
       const std::size_t parts = s.between(2, 4);
       s.add_targets(parts);
       s.each_target([&](DeviceView&, DeviceInfo& info) { info.memory_domain = "GPU-whole"; });
       s.count = parts;
       if (s.random.below(2) == 0) {
         s.add_targets(1);
         ++s.count;
       }
     },
     true},
};

inline Situation make(const Kind& kind, std::uint64_t seed, std::vector<int> spoils) {
  Situation s(seed, std::move(spoils));
  const std::size_t others = s.random.below(9);
  kind.inject(s);
  if (kind.name != "no devices") s.add_noise(others);
  if (s.count == 0) s.count = s.machine.infos.size() + s.between(1, 4);
  return s;
}

}  // namespace berth::bench
