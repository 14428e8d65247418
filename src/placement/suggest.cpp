#include "berth/suggest.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "berth/bytes.hpp"
#include "placement/explain.hpp"
#include "placement/saturating.hpp"

namespace berth {

using namespace placement;

namespace {

using Kind = SuggestionKind;

struct KindEntry {
  std::string_view name;
  Causes causes;  // that it addresses
};
// In the order of the enumerators.
constexpr KindEntry kinds[] = {
    {"uncordon", bit(Cause::cordoned) | bit(Cause::draining)},
    {"fresh_sample", bit(Cause::stale) | bit(Cause::silent)},
    {"share", bit(Cause::held) | bit(Cause::occupied)},
    {"fewer_bytes", bit(Cause::memory_unknown) | bit(Cause::memory_too_small) | bit(Cause::memory_in_use) |
                        bit(Cause::memory_promised) | bit(Cause::memory_fragmented) | bit(Cause::memory_shared)},
    {"end_leases", bit(Cause::held_exclusively)},
    {"wait_in_line", bit(Cause::kept)},
    {"end_processes", bit(Cause::occupied)},
    {"free_bytes", bit(Cause::memory_in_use) | bit(Cause::memory_promised) | bit(Cause::memory_fragmented)},
    {"health", bit(Cause::quarantined) | bit(Cause::lost) | bit(Cause::probation)},
    {"fewer_devices", bit(Cause::too_few_devices)},
    {"drop_avoid", bit(Cause::avoided)},
    {"drop_pin", bit(Cause::pinned)},
    {"lower_capability", bit(Cause::capability)},
    {"drop_feature", bit(Cause::feature)},
    {"drop_label", bit(Cause::label)},
    {"other_backend", bit(Cause::backend)},
};
const KindEntry& entry_of(Kind kind) { return kinds[static_cast<std::size_t>(kind)]; }

using Views = std::vector<DeviceView>;

bool fits(const Requirements& requirements, std::size_t count, std::span<const DeviceView> views) {
  return largest_group(requirements, views) >= count;
}

// All sets are tried in order of size, up to this number; after that, elements are removed one by
// one from the full set.
constexpr std::size_t sets_max = 4096;

// The first set of `size` elements of 0..n-1 that passes the test; empty: none does, or
// there are too many sets.
template <class Test>
std::vector<std::size_t> first_set(std::size_t n, std::size_t size, Test test) {
  std::vector<char> is_member(n);
  std::fill_n(is_member.begin(), size, 1);
  std::size_t tried = 0;
  do {
    std::vector<std::size_t> set;
    for (std::size_t i = 0; i < n; ++i) {
      if (is_member[i]) set.push_back(i);
    }
    if (test(set)) return set;
  } while (++tried < sets_max && std::prev_permutation(is_member.begin(), is_member.end()));
  return {};
}
bool too_many_sets(std::size_t n, std::size_t size) {
  std::size_t sets = 1;
  for (std::size_t i = 0; i < size && sets <= sets_max; ++i) sets = sets * (n - i) / (i + 1);
  return sets > sets_max;
}

// The smallest set of 0..n-1 that passes a monotonic test (a superset passes too);
// empty: not even the full set passes.
template <class Test>
std::vector<std::size_t> smallest_set(std::size_t n, Test test) {
  std::vector<std::size_t> all(n);
  for (std::size_t i = 0; i < n; ++i) all[i] = i;
  if (n == 0 || !test(all)) return {};
  for (std::size_t size = 1; size < n && !too_many_sets(n, size); ++size) {
    std::vector<std::size_t> found = first_set(n, size, test);
    if (!found.empty()) return found;
  }
  for (std::size_t i = n; i-- > 0 && all.size() > 1;) {
    std::vector<std::size_t> rest = all;
    rest.erase(std::find(rest.begin(), rest.end(), i));
    if (test(rest)) all = std::move(rest);
  }
  return all;
}

// The least of 1..high that passes a monotonic test; `high` passes.
template <class Test>
std::uint64_t least_that_passes(std::uint64_t high, Test test) {
  for (std::uint64_t low = 1; low < high;) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (test(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return high;
}

std::string listed(const std::vector<std::string>& parts) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i)
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  return text;
}
std::string listed(const std::vector<DeviceId>& ids) {
  std::vector<std::string> parts;
  for (const DeviceId& id : ids) parts.push_back(id.text());
  return listed(parts);
}

// For --mem: whole GiB or MiB, rounded down so that it still fits.
std::string memory_option(std::uint64_t bytes) {
  if (bytes % (std::uint64_t{1} << 30) == 0) return "--mem " + std::to_string(bytes >> 30) + "G";
  if (bytes >> 20 > 0) return "--mem " + std::to_string(bytes >> 20) + "M";
  return "--mem " + std::to_string(bytes) + "B";
}

class Suggestions {
 public:
  Suggestions(const Requirements& requirements, std::size_t count, std::span<const DeviceView> views,
              WaitOption waiting)
      : requirements_(requirements), count_(count), views_(views), waiting_(waiting) {}

  std::vector<Suggestion> all() {
    const bool refused = !fits(requirements_, count_, views_);
    if (!refused || views_.empty()) return {};
    uncordon();
    fresh_sample();
    share();
    fewer_bytes();
    end_leases();
    wait_in_line();
    end_processes();
    free_bytes();
    health();
    fewer_devices();
    drop_avoid();
    drop_pin();
    lower_capability();
    drop_feature();
    drop_label();
    other_backend();
    const Cause cause = cause_of(requirements_, count_, views_);
    std::sort(suggestions_.begin(), suggestions_.end(), [&](const Suggestion& a, const Suggestion& b) {
      const bool a_addresses = entry_of(a.kind).causes & bit(cause), b_addresses = entry_of(b.kind).causes & bit(cause);
      return std::tuple(!a_addresses, a.kind) < std::tuple(!b_addresses, b.kind);
    });
    return std::move(suggestions_);
  }

 private:
  bool fits_with(const Requirements& requirements) const { return fits(requirements, count_, views_); }
  template <class Change>
  bool fits_changed(Change change) const {
    Requirements changed = requirements_;
    change(changed);
    return fits_with(changed);
  }
  Suggestion& add(Kind kind, std::string text, std::string command) {
    Suggestion& suggestion = suggestions_.emplace_back();
    suggestion.kind = kind;
    suggestion.text = std::move(text);
    suggestion.command = std::move(command);
    return suggestion;
  }

  // The fewest of the devices selected by `applies` that let the request fit after `change`.
  template <class Applies, class Change>
  std::vector<DeviceId> fewest(Applies applies, Change change) const {
    std::vector<std::size_t> positions;
    for (std::size_t i = 0; i < views_.size(); ++i) {
      DeviceView changed = views_[i];
      change(changed);
      // A device that would still be rejected does not help.
      if (applies(views_[i]) && !reject(requirements_, changed)) positions.push_back(i);
    }
    std::vector<DeviceId> ids;
    for (const std::size_t i : smallest_set(positions.size(), [&](const std::vector<std::size_t>& set) {
           Views changed(views_.begin(), views_.end());
           for (const std::size_t j : set) change(changed[positions[j]]);
           return fits(requirements_, count_, changed);
         }))
      ids.push_back(views_[positions[i]].info->id);
    return ids;
  }
  void add_if_any(Kind kind, const std::vector<DeviceId>& ids, std::string text, std::string command) {
    if (!ids.empty()) add(kind, std::move(text), std::move(command)).devices = ids;
  }

  void uncordon() {
    const auto ids = fewest([](const DeviceView& v) { return v.intent != Intent::in_service; },
                            [](DeviceView& v) { v.intent = Intent::in_service; });
    std::string command;
    for (const DeviceId& id : ids) command += (command.empty() ? "berth uncordon " : " && berth uncordon ") + id.text();
    add_if_any(Kind::uncordon, ids, "put " + listed(ids) + " back in service", command);
  }

  void fresh_sample() {
    const auto lacks_fresh_sample = [&](const DeviceView& v) {
      return v.sample == SampleState::stale || (requirements_.whole && v.sample != SampleState::fresh);
    };
    const auto ids = fewest(lacks_fresh_sample, [](DeviceView& v) { v.sample = SampleState::fresh; });
    add_if_any(Kind::fresh_sample, ids,
               "wait until " + listed(ids) + (ids.size() == 1 ? " reports again" : " report again"), "berth doctor");
  }

  void health() {
    const auto ids = fewest([&](const DeviceView& v) { return fails(Rejection::unhealthy, requirements_, v); },
                            [](DeviceView& v) { v.health = Health::healthy; });
    add_if_any(Kind::health, ids,
               "wait until " + listed(ids) +
                   (ids.size() == 1 ? " is healthy again, or repair it" : " are healthy again, or repair them"),
               "berth doctor");
  }

  void end_leases() {
    const auto ids = fewest([&](const DeviceView& v) { return fails(Rejection::held, requirements_, v); },
                            [](DeviceView& v) {
                              v.holders = 0;
                              v.held_exclusively = false;
                            });
    add_if_any(Kind::end_leases, ids, "wait for the leases on " + listed(ids) + " to end, or end them", "berth ps");
  }

  void wait_in_line() {
    const auto ids = fewest([](const DeviceView& v) { return v.kept_for_waiting; },
                            [](DeviceView& v) { v.kept_for_waiting = false; });
    add_if_any(Kind::wait_in_line, ids,
               (waiting_ == WaitOption::timed_out ? "wait longer: " : "wait: ") + listed(ids) +
                   (ids.size() == 1 ? " is" : " are") + " reserved for a request that has waited longer",
               waiting_ == WaitOption::available   ? "--wait 10m"
               : waiting_ == WaitOption::timed_out ? "give a longer --wait"
                                                   : "berth ps");
  }

  void end_processes() {
    const auto ids =
        fewest([&](const DeviceView& v) { return fails(Rejection::occupied, requirements_, v) && v.memory_bytes_free; },
               [](DeviceView& v) {
                 v.other_processes = 0;
                 if (v.memory_bytes_free && v.info->memory_bytes_total)
                   v.memory_bytes_free = std::max(*v.memory_bytes_free, *v.info->memory_bytes_total);
               });
    add_if_any(Kind::end_processes, ids, "wait for the processes on " + listed(ids) + " to end, or end them",
               "berth devices");
  }

  void share() {
    if (!requirements_.is_exclusive()) return;
    Requirements requirements = requirements_;
    requirements.exclusive = requirements.whole = false;
    // Instead of a whole device, suggest the most memory available next to other leases.
    const bool by_bytes = requirements_.whole && requirements_.memory_bytes_min == 0 && !requirements_.memory_share;
    if (!by_bytes) {
      if (fits_with(requirements))
        add(Kind::share, "share the device instead of using it exclusively", "leave out --exclusive");
      return;
    }
    const std::uint64_t most = most_bytes(requirements);
    if (most == 0) return;
    add(Kind::share, "share the device: ask for the memory it needs, at most " + bytes_text(most), memory_option(most))
        .amount = most;
  }

  // The most bytes per device that fit with these requirements.
  std::uint64_t most_bytes(Requirements requirements) const {
    // If k devices share a memory, each gets at most 1/k of it.
    std::vector<std::uint64_t> amounts;
    for (const DeviceView& view : views_) {
      if (reject(requirements, view) || !view.memory_bytes_available()) continue;
      for (std::size_t k = 1; k <= count_; ++k) amounts.push_back(*view.memory_bytes_available() / k);
    }
    std::sort(amounts.begin(), amounts.end());
    amounts.erase(std::unique(amounts.begin(), amounts.end()), amounts.end());
    const auto first_too_many = std::partition_point(amounts.begin(), amounts.end(), [&](std::uint64_t bytes) {
      requirements.memory_bytes_min = bytes;
      return fits_with(requirements);
    });
    return first_too_many == amounts.begin() ? 0 : *(first_too_many - 1);
  }

  void fewer_bytes() {
    Requirements requirements = requirements_;
    requirements.memory_share.reset();
    requirements.memory_bytes_min = 0;
    const std::uint64_t most = most_bytes(requirements);
    // With a share there is no single number to compare with.
    if (most == 0 || (!requirements_.memory_share && most >= requirements_.memory_bytes_min)) return;
    const std::string instead =
        requirements_.memory_share ? "" : " instead of " + bytes_text(requirements_.memory_bytes_min);
    add(Kind::fewer_bytes, "ask for " + bytes_text(most) + instead, memory_option(most)).amount = most;
  }

  void free_bytes() {
    if (requirements_.whole) return;  // all memory must be free; see end_processes
    // Only devices that nothing else rejects are considered.
    Requirements without = requirements_;
    without.memory_share.reset();
    without.memory_bytes_min = 0;
    std::vector<std::string_view> domains;
    std::vector<DeviceId> names;  // one device per memory domain
    std::uint64_t most = 0;
    for (const DeviceView& view : views_) {
      const OptionalU64 needed = requirements_.memory_bytes_needed(*view.info);
      if (reject(without, view) || !needed || *needed == 0 || !view.memory_bytes_available()) continue;
      most = std::max(most, policy::saturating_product(*needed, count_));
      const std::string_view domain = view.info->memory_home();
      if (std::find(domains.begin(), domains.end(), domain) != domains.end()) continue;
      domains.push_back(domain);
      names.push_back(view.info->id);
    }
    // Whether it fits with that many bytes freed in each memory of the set.
    const auto fits_with_each = [&](const std::vector<std::size_t>& set, const std::vector<std::uint64_t>& each) {
      Views changed(views_.begin(), views_.end());
      for (DeviceView& view : changed) {
        const std::string_view domain = view.info->memory_home();
        const auto member = std::find_if(set.begin(), set.end(), [&](std::size_t i) { return domains[i] == domain; });
        if (!view.memory_bytes_available() || member == set.end()) continue;
        const std::uint64_t bytes = each[static_cast<std::size_t>(member - set.begin())];
        // The free memory after the change: at least the current amount, at most the total.
        const std::uint64_t now = *view.memory_bytes_available();
        const std::uint64_t total = view.info->memory_bytes_total.value_or(OptionalU64().raw() - 1);
        view.memory_bytes_free = std::max(now, std::min(policy::saturating_sum(now, bytes), total));
        view.memory_bytes_promised = 0;
      }
      return fits(requirements_, count_, changed);
    };
    const auto fits_after = [&](const std::vector<std::size_t>& set, std::uint64_t bytes) {
      return fits_with_each(set, std::vector<std::uint64_t>(set.size(), bytes));
    };
    const std::vector<std::size_t> fewest =
        smallest_set(domains.size(), [&](const std::vector<std::size_t>& set) { return fits_after(set, most); });
    if (fewest.empty()) return;
    // Among all sets of that size, the one that needs the fewest bytes.
    std::uint64_t least = most;
    std::vector<std::size_t> best = fewest;
    const auto try_set = [&](const std::vector<std::size_t>& set) {
      if (!fits_after(set, least)) return false;
      const std::uint64_t low = least_that_passes(least, [&](std::uint64_t bytes) { return fits_after(set, bytes); });
      if (low < least) best = set;
      least = low;
      return false;
    };
    try_set(fewest);
    first_set(domains.size(), fewest.size(), try_set);
    // Then reduce the bytes on each of them as far as possible.
    std::vector<std::uint64_t> each(best.size(), least);
    for (std::uint64_t& bytes : each) {
      bytes = least_that_passes(bytes, [&](std::uint64_t fewer) {
        bytes = fewer;
        return fits_with_each(best, each);
      });
    }
    std::vector<DeviceId> ids;
    for (const std::size_t i : best) ids.push_back(names[i]);
    // Promised bytes belong to Berth's leases, which `berth ps` lists; it does not list other processes.
    const bool promised = std::any_of(views_.begin(), views_.end(), [&](const DeviceView& view) {
      return view.memory_bytes_promised > 0 && std::any_of(best.begin(), best.end(), [&](std::size_t i) {
               return domains[i] == view.info->memory_home();
             });
    });
    Suggestion& suggestion =
        add(Kind::free_bytes, "free " + bytes_on_each(each, ids), promised ? "berth ps" : "berth devices");
    suggestion.amount = least;
    suggestion.amounts = std::move(each);
    suggestion.devices = std::move(ids);
  }

  // "9.0 GiB on A and 99.0 GiB on B", or "9.0 GiB on each of A and B".
  static std::string bytes_on_each(const std::vector<std::uint64_t>& bytes, const std::vector<DeviceId>& ids) {
    if (std::all_of(bytes.begin(), bytes.end(), [&](std::uint64_t b) { return b == bytes.front(); }))
      return bytes_text(bytes.front()) + (ids.size() == 1 ? " on " : " on each of ") + listed(ids);
    std::vector<std::string> parts;
    for (std::size_t i = 0; i < ids.size(); ++i) parts.push_back(bytes_text(bytes[i]) + " on " + ids[i].text());
    return listed(parts);
  }

  void fewer_devices() {
    const std::size_t most = largest_group(requirements_, views_);
    if (most == 0) return;
    add(Kind::fewer_devices, "ask for " + std::to_string(most) + " instead of " + std::to_string(count_) + " devices",
        "-n " + std::to_string(most))
        .amount = most;
  }

  void drop_avoid() {
    // An id named twice is one entry.
    const std::set<DeviceId> distinct(requirements_.avoid.begin(), requirements_.avoid.end());
    const std::vector<DeviceId> avoided(distinct.begin(), distinct.end());
    std::vector<DeviceId> ids;
    for (const std::size_t i : smallest_set(avoided.size(), [&](const std::vector<std::size_t>& set) {
           return fits_changed([&](Requirements& changed) {
             for (const std::size_t j : set) std::erase(changed.avoid, avoided[j]);
           });
         }))
      ids.push_back(avoided[i]);
    if (ids.empty()) return;
    add(Kind::drop_avoid, "allow " + listed(ids), "leave out --avoid " + ids.front().text()).devices = ids;
  }

  void drop_pin() {
    if (!requirements_.only.empty() && fits_changed([](Requirements& changed) { changed.only.clear(); }))
      add(Kind::drop_pin, "allow any device, not only " + listed(requirements_.only), "leave out --device");
  }

  void lower_capability() {
    if (!requirements_.capability_min) return;
    std::set<Capability, std::greater<>> lower;
    for (const DeviceView& view : views_) {
      if (view.info->capability && *view.info->capability < *requirements_.capability_min)
        lower.insert(*view.info->capability);
    }
    Requirements requirements = requirements_;
    for (const Capability& capability : lower) {
      requirements.capability_min = capability;
      if (!fits_with(requirements)) continue;
      add(Kind::lower_capability,
          "ask for capability " + to_string(capability) + " instead of " + to_string(*requirements_.capability_min),
          "--capability " + to_string(capability))
          .capability = capability;
      return;
    }
    requirements.capability_min.reset();
    if (fits_with(requirements))
      add(Kind::lower_capability, "drop the capability requirement", "leave out --capability");
  }

  void drop_feature() {
    for (const std::string& feature : requirements_.features) {
      if (!fits_changed([&](Requirements& changed) { changed.features.erase(feature); })) continue;
      add(Kind::drop_feature, "drop the requirement for " + feature, "leave out --feature " + feature).name = feature;
      return;
    }
  }

  void drop_label() {
    for (const auto& [name, value] : requirements_.labels) {
      if (!fits_changed([&](Requirements& changed) { changed.labels.erase(name); })) continue;
      const std::string label = name + "=" + value;
      add(Kind::drop_label, "drop the requirement for " + label, "leave out --label " + label).name = name;
      return;
    }
  }

  void other_backend() {
    if (requirements_.backends.empty()) return;
    std::set<std::string> others;
    for (const DeviceView& view : views_) others.insert(view.info->backend);
    for (const std::string& wanted : requirements_.backends) others.erase(wanted);
    for (const std::string& other : others) {
      if (!fits_changed([&](Requirements& changed) { changed.backends = {other}; })) continue;
      add(Kind::other_backend, "use " + other + " devices instead of " + wanted_backends(requirements_),
          "--backend " + other)
          .name = other;
      return;
    }
  }

  const Requirements& requirements_;
  std::size_t count_;
  std::span<const DeviceView> views_;
  WaitOption waiting_;
  std::vector<Suggestion> suggestions_;
};

}  // namespace

std::string_view to_string(SuggestionKind kind) noexcept { return entry_of(kind).name; }

std::vector<Suggestion> suggest(const Requirements& requirements, std::size_t count, std::span<const DeviceView> views,
                                WaitOption waiting) {
  return Suggestions(requirements, count, views, waiting).all();
}

}  // namespace berth
