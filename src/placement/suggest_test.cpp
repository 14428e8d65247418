// Every suggestion must let the request fit, and no smaller one of its kind may; checked
// by trying all of them on small random machines.
#include "berth/suggest.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "placement/test_groups.hpp"
#include "world/test_random_cases.hpp"

namespace berth::placement {
namespace {

using Kind = SuggestionKind;

using Views = std::vector<DeviceView>;

// A request with most options, on a machine with most kinds of problems.
struct Request {
  TestFleet fleet;
  Requirements requirements;
  std::size_t count = 1;

  explicit Request(std::uint64_t seed) : fleet(random_machine(1 + seed % 5, seed)) {
    SeededRandom random(splitmix64(seed ^ 0x31));
    const auto one_in = [&](std::uint64_t n) { return random.below(n) == 0; };
    for (std::size_t i = 0; i < fleet.size(); ++i) {
      DeviceInfo& info = fleet.info(i);
      info.capability = Capability{static_cast<std::int32_t>(5 + random.below(5)), 0};
      if (one_in(3)) info.backend = "cuda";
      if (one_in(2)) info.features = {"ptx"};
      if (one_in(2)) info.labels = {{"zone", "a"}};
      // With more problems, no single change would help.
      if (!one_in(3)) fleet[i].health = Health::healthy;
      if (!one_in(3)) fleet[i].intent = Intent::in_service;
      if (!one_in(3)) fleet[i].sample = SampleState::fresh;
      if (!one_in(3)) fleet[i].held_exclusively = false;
    }
    if (!one_in(4)) requirements.memory_bytes_min = 1 + random.below(20 * gib);
    if (one_in(4)) requirements.memory_share = static_cast<double>(1 + random.below(8)) / 8;
    if (one_in(4)) requirements.capability_min = Capability{static_cast<std::int32_t>(5 + random.below(6)), 0};
    if (one_in(5)) requirements.features = {"ptx"};
    if (one_in(5)) requirements.labels = {{"zone", "a"}};
    if (one_in(5)) requirements.backends = {"cuda"};
    if (one_in(5)) requirements.only = {fleet.info(random.below(fleet.size())).id};
    if (one_in(4)) requirements.avoid = {fleet.info(0).id, fleet.info(random.below(fleet.size())).id};
    requirements.exclusive = one_in(4);
    requirements.whole = one_in(4);
    if (requirements.whole && one_in(2)) {
      requirements.memory_bytes_min = 0;
      requirements.memory_share.reset();
    }
    count = 1 + random.below(3);
  }
};

// The suggestion of that kind, or null.
const Suggestion* find(const std::vector<Suggestion>& suggestions, Kind kind) {
  const auto found =
      std::find_if(suggestions.begin(), suggestions.end(), [&](const Suggestion& c) { return c.kind == kind; });
  return found == suggestions.end() ? nullptr : &*found;
}

// The size of the smallest set of 0..n-1 that passes; n + 1: none does.
template <class Test>
std::size_t smallest(std::size_t n, Test test) {
  std::size_t best = n + 1;
  for (std::uint64_t mask = 1; mask < (std::uint64_t{1} << n); ++mask) {
    const auto size = static_cast<std::size_t>(std::popcount(mask));
    if (size < best && test(mask)) best = size;
  }
  return best;
}

constexpr std::uint64_t suggest_seeds = world::random_cases(6000);

class SuggestLaw : public testing::Test {
 protected:
  // Calls check(request, suggestions) for every refused request.
  template <class Check>
  void each_refused(Check check) {
    std::size_t refused = 0;
    for (seed_ = 0; seed_ < suggest_seeds; ++seed_) {
      Request request(seed_);
      const bool fits = any_group_fits(request.requirements, request.count, request.fleet);
      const std::vector<Suggestion> suggestions = suggest(request.requirements, request.count, request.fleet);
      if (fits) {
        ASSERT_TRUE(suggestions.empty()) << "seed " << seed_;
        continue;
      }
      ++refused;
      check(request, suggestions);
      if (HasFatalFailure() || HasFailure()) {
        ADD_FAILURE() << "seed " << seed_;
        return;
      }
    }
    EXPECT_GT(refused, suggest_seeds / 4);
    EXPECT_GT(suggested_, suggest_seeds / 1500)
        << "the random machines must lead to this suggestion in some of the cases";
  }

  // A suggestion about a set of devices: `change` is made to each of them.
  template <class Change>
  void check_devices(Request& request, const std::vector<Suggestion>& suggestions, Kind kind, Change change) {
    const auto fits_after = [&](auto chosen) {
      Views views(request.fleet.views().begin(), request.fleet.views().end());
      for (std::size_t i = 0; i < views.size(); ++i) {
        if (chosen(i)) change(views[i]);
      }
      return any_group_fits(request.requirements, request.count, views);
    };
    const std::size_t least = smallest(request.fleet.size(), [&](std::uint64_t mask) {
      return fits_after([&](std::size_t i) { return (mask >> i & 1) != 0; });
    });
    const Suggestion* suggestion = find(suggestions, kind);
    ASSERT_EQ(suggestion != nullptr, least <= request.fleet.size());
    if (suggestion == nullptr) return;
    ++suggested_;
    ASSERT_EQ(suggestion->devices.size(), least);
    ASSERT_TRUE(fits_after([&](std::size_t i) {
      return std::count(suggestion->devices.begin(), suggestion->devices.end(), request.fleet.info(i).id) > 0;
    }));
  }
  // A suggestion about the request: `apply` changes the requirements.
  template <class Apply>
  void check_request(Request& request, const std::vector<Suggestion>& suggestions, Kind kind, bool can, Apply apply) {
    Requirements requirements = request.requirements;
    apply(requirements);
    const bool fits = can && any_group_fits(requirements, request.count, request.fleet);
    ASSERT_EQ(find(suggestions, kind) != nullptr, fits) << to_string(kind);
    suggested_ += fits ? 1 : 0;
  }

  std::uint64_t seed_ = 0;
  std::size_t suggested_ = 0;
};

TEST_F(SuggestLaw, TheFewestDevicesBackInService) {
  each_refused([&](Request& request, const auto& suggestions) {
    check_devices(request, suggestions, Kind::uncordon, [](DeviceView& v) { v.intent = Intent::in_service; });
  });
}
TEST_F(SuggestLaw, TheFewestDevicesWithAFreshSample) {
  each_refused([&](Request& request, const auto& suggestions) {
    check_devices(request, suggestions, Kind::fresh_sample, [](DeviceView& v) { v.sample = SampleState::fresh; });
  });
}
TEST_F(SuggestLaw, TheFewestDevicesRepaired) {
  each_refused([&](Request& request, const auto& suggestions) {
    check_devices(request, suggestions, Kind::health, [](DeviceView& v) { v.health = Health::healthy; });
  });
}
TEST_F(SuggestLaw, TheFewestDevicesWithoutLeases) {
  each_refused([&](Request& request, const auto& suggestions) {
    check_devices(request, suggestions, Kind::end_leases, [](DeviceView& v) {
      v.holders = 0;
      v.held_exclusively = false;
    });
  });
}

TEST_F(SuggestLaw, TheFewestDevicesNoLongerKept) {
  each_refused([&](Request& request, const auto& suggestions) {
    check_devices(request, suggestions, Kind::wait_in_line, [](DeviceView& v) { v.kept_for_waiting = false; });
  });
}
TEST_F(SuggestLaw, TheFewestDevicesWithoutProcesses) {
  each_refused([&](Request& request, const auto& suggestions) {
    check_devices(request, suggestions, Kind::end_processes, [&](DeviceView& v) {
      if (!request.requirements.whole || reject(request.requirements, v) != Rejection::occupied || !v.memory_bytes_free)
        return;
      v.other_processes = 0;
      if (v.info->memory_bytes_total) v.memory_bytes_free = std::max(*v.memory_bytes_free, *v.info->memory_bytes_total);
    });
  });
}

TEST_F(SuggestLaw, TheMostBytesThatFit) {
  each_refused([&](Request& request, const auto& suggestions) {
    const auto fits_with = [&](std::uint64_t bytes) {
      Requirements requirements = request.requirements;
      requirements.memory_share.reset();
      requirements.memory_bytes_min = bytes;
      return any_group_fits(requirements, request.count, request.fleet);
    };
    const bool asked = request.requirements.memory_bytes_min > 0 || request.requirements.memory_share;
    const Suggestion* suggestion = find(suggestions, Kind::fewer_bytes);
    ASSERT_EQ(suggestion != nullptr, asked && fits_with(1));
    if (suggestion == nullptr) return;
    ++suggested_;
    ASSERT_TRUE(fits_with(suggestion->amount));
    ASSERT_FALSE(fits_with(suggestion->amount + 1));
  });
}

TEST_F(SuggestLaw, TheMostAvailableDevices) {
  each_refused([&](Request& request, const auto& suggestions) {
    const Suggestion* suggestion = find(suggestions, Kind::fewer_devices);
    ASSERT_EQ(suggestion != nullptr, any_group_fits(request.requirements, 1, request.fleet));
    if (suggestion == nullptr) return;
    ++suggested_;
    ASSERT_TRUE(any_group_fits(request.requirements, suggestion->amount, request.fleet));
    ASSERT_FALSE(any_group_fits(request.requirements, suggestion->amount + 1, request.fleet));
  });
}

TEST_F(SuggestLaw, TheHighestCapabilityThatFits) {
  each_refused([&](Request& request, const auto& suggestions) {
    const Suggestion* suggestion = find(suggestions, Kind::lower_capability);
    const auto fits_with = [&](std::optional<Capability> capability) {
      Requirements requirements = request.requirements;
      requirements.capability_min = capability;
      return any_group_fits(requirements, request.count, request.fleet);
    };
    ASSERT_EQ(suggestion != nullptr, request.requirements.capability_min && fits_with(std::nullopt));
    if (suggestion == nullptr) return;
    ++suggested_;
    ASSERT_TRUE(fits_with(suggestion->capability));
    for (std::int32_t major = 0; major < 12; ++major) {
      const Capability other{major, 0};
      const bool between =
          other < *request.requirements.capability_min && (!suggestion->capability || *suggestion->capability < other);
      ASSERT_FALSE(between && fits_with(other)) << major;
    }
  });
}

TEST_F(SuggestLaw, RequirementsToDrop) {
  each_refused([&](Request& request, const auto& suggestions) {
    const Requirements& requirements = request.requirements;
    const bool by_bytes = requirements.whole && requirements.memory_bytes_min == 0 && !requirements.memory_share;
    check_request(request, suggestions, Kind::share, requirements.is_exclusive(), [&](Requirements& h) {
      h.exclusive = h.whole = false;
      if (by_bytes) h.memory_bytes_min = 1;
    });
    if (const Suggestion* share = find(suggestions, Kind::share); share != nullptr && by_bytes) {
      Requirements shared = requirements;
      shared.exclusive = shared.whole = false;
      shared.memory_bytes_min = share->amount;
      ASSERT_TRUE(any_group_fits(shared, request.count, request.fleet));
      ++shared.memory_bytes_min;
      ASSERT_FALSE(any_group_fits(shared, request.count, request.fleet));
    }
    check_request(request, suggestions, Kind::drop_pin, !requirements.only.empty(),
                  [](Requirements& h) { h.only.clear(); });
    check_request(request, suggestions, Kind::drop_feature, !requirements.features.empty(),
                  [](Requirements& h) { h.features.clear(); });
    check_request(request, suggestions, Kind::drop_label, !requirements.labels.empty(),
                  [](Requirements& h) { h.labels.clear(); });
    check_request(request, suggestions, Kind::other_backend, !requirements.backends.empty(),
                  [](Requirements& h) { h.backends = {"simulated"}; });
  });
}

TEST_F(SuggestLaw, TheFewestEntriesOfAvoidToDrop) {
  each_refused([&](Request& request, const auto& suggestions) {
    const std::set<DeviceId> distinct(request.requirements.avoid.begin(), request.requirements.avoid.end());
    const std::vector<DeviceId> avoided(distinct.begin(), distinct.end());
    const std::size_t least = smallest(avoided.size(), [&](std::uint64_t mask) {
      Requirements requirements = request.requirements;
      for (std::size_t i = 0; i < avoided.size(); ++i) {
        if (mask >> i & 1) std::erase(requirements.avoid, avoided[i]);
      }
      return any_group_fits(requirements, request.count, request.fleet);
    });
    const Suggestion* suggestion = find(suggestions, Kind::drop_avoid);
    ASSERT_EQ(suggestion != nullptr, least <= avoided.size());
    if (suggestion == nullptr) return;
    ++suggested_;
    ASSERT_EQ(suggestion->devices.size(), least);
  });
}

TEST_F(SuggestLaw, TheFewestMemoriesAndBytesToFree) {
  each_refused([&](Request& request, const auto& suggestions) {
    if (request.requirements.whole) return;  // see end_processes
    std::vector<std::string_view> domains;
    for (const DeviceView& view : request.fleet.views()) {
      if (std::find(domains.begin(), domains.end(), domain_of(view)) == domains.end())
        domains.push_back(domain_of(view));
    }
    const auto fits_after = [&](auto chosen, std::uint64_t bytes) {
      Views views(request.fleet.views().begin(), request.fleet.views().end());
      for (DeviceView& view : views) {
        if (!view.memory_bytes_free || !chosen(domain_of(view))) continue;
        const std::uint64_t total = view.info->memory_bytes_total.value_or(1000 * gib);
        const std::uint64_t now = *view.memory_bytes_available();
        view.memory_bytes_free = std::max(now, std::min(now + bytes, total));
        view.memory_bytes_promised = 0;
      }
      return any_group_fits(request.requirements, request.count, views);
    };
    const auto in_mask = [&](std::uint64_t mask) {
      return [&domains, mask](std::string_view domain) {
        const auto at = std::find(domains.begin(), domains.end(), domain) - domains.begin();
        return (mask >> at & 1) != 0;
      };
    };
    const std::size_t least =
        smallest(domains.size(), [&](std::uint64_t mask) { return fits_after(in_mask(mask), 1000 * gib); });
    const Suggestion* suggestion = find(suggestions, Kind::free_bytes);
    ASSERT_EQ(suggestion != nullptr, least <= domains.size());
    if (suggestion == nullptr) return;
    ++suggested_;
    std::set<std::string_view> freed;
    for (const DeviceView& view : request.fleet.views()) {
      if (std::count(suggestion->devices.begin(), suggestion->devices.end(), view.info->id) > 0)
        freed.insert(domain_of(view));
    }
    ASSERT_EQ(freed.size(), least);
    ASSERT_EQ(suggestion->devices.size(), least);
    ASSERT_TRUE(fits_after([&](std::string_view domain) { return freed.contains(domain); }, suggestion->amount));
    ASSERT_GT(suggestion->amount, 0U);
    // The suggested bytes are enough, and not one byte less on any device.
    ASSERT_EQ(suggestion->amounts.size(), least);
    const auto fits_with_each = [&](const std::vector<std::uint64_t>& amounts) {
      Views views(request.fleet.views().begin(), request.fleet.views().end());
      for (std::size_t i = 0; i < amounts.size(); ++i) {
        const auto named = std::find_if(views.begin(), views.end(),
                                        [&](const DeviceView& v) { return v.info->id == suggestion->devices[i]; });
        for (DeviceView& view : views) {
          if (domain_of(view) != domain_of(*named) || !view.memory_bytes_free) continue;
          const std::uint64_t now = *view.memory_bytes_available();
          const std::uint64_t total = view.info->memory_bytes_total.value_or(1000 * gib);
          view.memory_bytes_free = std::max(now, std::min(now + amounts[i], total));
          view.memory_bytes_promised = 0;
        }
      }
      return any_group_fits(request.requirements, request.count, views);
    };
    ASSERT_TRUE(fits_with_each(suggestion->amounts));
    for (std::size_t i = 0; i < least; ++i) {
      std::vector<std::uint64_t> less = suggestion->amounts;
      --less[i];
      ASSERT_FALSE(fits_with_each(less));
    }
    // No set of the same size needs fewer bytes.
    const std::size_t with_less =
        smallest(domains.size(), [&](std::uint64_t mask) { return fits_after(in_mask(mask), suggestion->amount - 1); });
    ASSERT_GT(with_less, least);
  });
}

std::string texts(const std::vector<Suggestion>& suggestions) {
  std::string text;
  for (const Suggestion& suggestion : suggestions) text += suggestion.text + " [" + suggestion.command + "]\n";
  return text;
}

TEST(Suggest, TheSuggestionForTheCauseComesFirst) {
  TestFleet fleet(3);
  fleet[0].intent = Intent::cordoned;
  fleet[1].memory_bytes_free = 3 * gib;
  fleet[2].memory_bytes_promised = 10 * gib;
  EXPECT_EQ(texts(suggest(needing(8 * gib), 1, fleet)),
            "ask for 6.0 GiB instead of 8.0 GiB [--mem 6G]\n"
            "free 2.0 GiB on dev-02 [berth ps]\n"
            "put dev-00 back in service [berth uncordon dev-00]\n");
}

TEST(Suggest, ContainsTheCommandOrOption) {
  TestFleet fleet(3);
  fleet.info(0).capability = Capability{8, 6};
  fleet.info(1).capability = fleet.info(2).capability = Capability{7, 5};
  Requirements requirements;
  requirements.capability_min = Capability{9, 0};
  EXPECT_EQ(texts(suggest(requirements, 1, fleet)), "ask for capability 8.6 instead of 9.0 [--capability 8.6]\n");
  EXPECT_EQ(texts(suggest({}, 5, fleet)), "ask for 3 instead of 5 devices [-n 3]\n");
  EXPECT_TRUE(suggest({}, 1, fleet).empty()) << "it fits";
  EXPECT_TRUE(suggest({}, 1, {}).empty()) << "nothing helps";
  fleet[0].intent = fleet[1].intent = Intent::draining;
  EXPECT_EQ(texts(suggest({}, 3, fleet)),
            "put dev-00 and dev-01 back in service [berth uncordon dev-00 && berth uncordon dev-01]\n"
            "ask for 1 instead of 3 devices [-n 1]\n");
  for (std::size_t i = 0; i < 3; ++i) fleet[i].memory_bytes_free = gib + 1;
  EXPECT_EQ(suggest(needing(2 * gib), 1, fleet).front().command, "--mem 1024M") << "rounded down, so that it fits";
}

TEST(Suggest, TheBytesToFreeAreGivenPerDevice) {
  TestFleet fleet(3);
  fleet[1].memory_bytes_free = 11 * gib;
  fleet[2].memory_bytes_free = 2 * gib;
  const std::vector<Suggestion> suggestions = suggest(needing(12 * gib), 3, fleet);
  const Suggestion* suggestion = find(suggestions, Kind::free_bytes);
  ASSERT_NE(suggestion, nullptr);
  EXPECT_EQ(suggestion->text, "free 1.0 GiB on dev-01 and 10.0 GiB on dev-02");
  EXPECT_EQ(suggestion->command, "berth devices") << "nothing is promised, so berth ps would show nothing";
  fleet[1].memory_bytes_free = 2 * gib;
  EXPECT_EQ(find(suggest(needing(12 * gib), 3, fleet), Kind::free_bytes)->text,
            "free 10.0 GiB on each of dev-01 and dev-02");
}

TEST(Suggest, InsteadOfAWholeDeviceAnAmountOfMemoryIsSuggested) {
  TestFleet fleet(2);
  fleet[0].holders = fleet[1].holders = 1;
  fleet[0].memory_bytes_promised = 4 * gib;
  fleet[1].memory_bytes_promised = 10 * gib;
  Requirements requirements;
  requirements.whole = requirements.exclusive = true;
  EXPECT_EQ(texts(suggest(requirements, 1, fleet)),
            "share the device: ask for the memory it needs, at most 12.0 GiB [--mem 12G]\n");
  requirements.whole = false;
  EXPECT_EQ(texts(suggest(requirements, 1, fleet)),
            "share the device instead of using it exclusively [leave out --exclusive]\n"
            "wait for the leases on dev-00 to end, or end them [berth ps]\n");
}

TEST(Suggest, EndingForeignProcessesIsSuggested) {
  TestFleet fleet(1);
  fleet[0].other_processes = 2;
  fleet[0].memory_bytes_free = 6 * gib;
  Requirements requirements;
  requirements.whole = true;
  EXPECT_EQ(texts(suggest(requirements, 1, fleet)),
            "share the device: ask for the memory it needs, at most 6.0 GiB [--mem 6G]\n"
            "wait for the processes on dev-00 to end, or end them [berth devices]\n");
}

TEST(Suggest, WaitingIsSuggestedOnlyIfTheRequestCanWait) {
  TestFleet fleet(1);
  fleet[0].kept_for_waiting = true;
  EXPECT_EQ(suggest(needing(gib), 1, fleet).front().text,
            "wait: dev-00 is reserved for a request that has waited longer");
  EXPECT_EQ(suggest(needing(gib), 1, fleet).front().command, "--wait 10m");
  EXPECT_EQ(suggest(needing(gib), 1, fleet, WaitOption::timed_out).front().command, "give a longer --wait");
  EXPECT_EQ(suggest(needing(gib), 1, fleet, WaitOption::unsupported).front().command, "berth ps");
}

TEST(Suggest, EveryKindHasADistinctName) {
  std::set<std::string_view> names;
  for (int kind = 0; kind <= static_cast<int>(Kind::other_backend); ++kind)
    names.insert(to_string(static_cast<Kind>(kind)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(Kind::other_backend) + 1);
}

TEST(Suggest, ALargeMachineGetsASuggestion) {
  TestFleet fleet(200);
  for (std::size_t i = 0; i < 200; ++i) fleet[i].intent = Intent::cordoned;
  const std::vector<Suggestion> suggestions = suggest({}, 7, fleet);
  ASSERT_EQ(suggestions.size(), 1U);
  EXPECT_EQ(suggestions[0].devices.size(), 7U);
}

}  // namespace
}  // namespace berth::placement
