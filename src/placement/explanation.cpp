// Explains a decision, as data and as text: the main reason first, then how many
// devices each filter left, then every device.
#include <algorithm>
#include <array>

#include "berth/bytes.hpp"
#include "placement/explain.hpp"
#include "placement/nearest_name.hpp"
#include "world/shared_explanation.hpp"

namespace berth {

using namespace placement;

namespace {

std::string count_of(std::size_t n, std::string_view noun) {
  return std::to_string(n) + " " + std::string(noun) + (n == 1 ? "" : "s");
}

// "a cuda device", "an opencl device".
std::string device_of_backend(const std::string& backend) {
  const bool vowel = std::string_view("aeiou").find(backend.empty() ? ' ' : backend.front()) != std::string_view::npos;
  return (vowel ? "an " : "a ") + backend + " device";
}

std::string wanted_features(const Requirements& requirements) {
  std::string text;
  for (const std::string& feature : requirements.features) text += (text.empty() ? "" : ", ") + feature;
  for (const auto& [name, value] : requirements.labels) text += (text.empty() ? "" : ", ") + name + "=" + value;
  return text;
}

// "22.0 GiB", "50 % of the memory", or both; empty: no memory was requested.
std::string wanted_memory(const Requirements& requirements) {
  std::string text = requirements.memory_bytes_min == 0 ? "" : bytes_text(requirements.memory_bytes_min);
  if (!requirements.memory_share) return text;
  std::string percent = std::to_string(*requirements.memory_share * 100);
  percent.resize(percent.find('.') + 2);
  if (percent.ends_with(".0")) percent.resize(percent.size() - 2);
  return (text.empty() ? "" : text + " and ") + percent + " % of the memory";
}

std::string memory_detail(const Requirements& requirements, const DeviceView& view) {
  const OptionalU64 needed = requirements.memory_bytes_needed(*view.info);
  if (!needed) return "needs " + wanted_memory(requirements) + ", does not report its memory size";
  const std::string needs = bytes_text(*needed);
  const auto& total = view.info->memory_bytes_total;
  if (total && *total < *needed) return "needs " + needs + ", has " + bytes_text(*total) + " in total";
  const OptionalU64 available = view.memory_bytes_available();
  if (!available) return "needs " + needs + ", does not report free memory";
  const std::string has = bytes_text(*available);
  // Both round to the same text, so show exact bytes.
  if (needs == has) {
    return "needs " + std::to_string(*needed) + " bytes, " + std::to_string(*available) + " available";
  }
  return "needs " + needs + ", " + has + " available";
}

std::string feature_detail(const Requirements& requirements, const DeviceInfo& info) {
  for (const std::string& feature : requirements.features) {
    if (!info.features.contains(feature)) return "lacks " + feature;
  }
  for (const auto& [name, value] : requirements.labels) {
    const auto found = info.labels.find(name);
    if (found == info.labels.end()) return "has no label " + name + ", needs " + value;
    if (found->second != value) return "has " + name + "=" + found->second + ", needs " + value;
  }
  return {};
}

std::string occupied_detail(const DeviceView& view) {
  switch (wholeness(view)) {
    case Wholeness::whole: break;
    case Wholeness::no_answer: return "does not answer";
    case Wholeness::has_processes:
      return "in use by " + std::to_string(view.other_processes) + " other process" +
             (view.other_processes == 1 ? "" : "es");
    case Wholeness::unknown_memory: return "does not report free memory";
    case Wholeness::has_memory_in_use: {
      const std::uint64_t total = *view.info->memory_bytes_total, free = std::min(*view.memory_bytes_free, total);
      // Report the larger of the bytes in use and the bytes promised.
      const bool promised = view.memory_bytes_promised > total - free;
      const std::uint64_t amount = promised ? std::min(view.memory_bytes_promised, total) : total - free;
      return bytes_text(amount) + " of its " + bytes_text(total) + (promised ? " are promised" : " are in use");
    }
  }
  return {};
}

std::string detail_of(const Requirements& requirements, const DeviceView& view, std::optional<Rejection> rejection) {
  if (!rejection) return view.health == Health::healthy ? "" : std::string(to_string(view.health));
  switch (*rejection) {
    case Rejection::not_selected:
      if (!has_backend(requirements, *view.info)) {
        return "is " + device_of_backend(view.info->backend) + ", needs " + wanted_backends(requirements);
      }
      return names(requirements.avoid, *view.info) ? "excluded by --avoid" : "not among the requested devices";
    case Rejection::not_in_service: return std::string(to_string(view.intent));
    case Rejection::unhealthy:
      return view.health == Health::probation ? "on probation, and already busy with one task"
                                              : std::string(to_string(view.health));
    case Rejection::stale: return "has not reported its load recently";
    case Rejection::capability:
      return "needs " + to_string(*requirements.capability_min) + ", " +
             (view.info->capability ? "has " + to_string(*view.info->capability) : "does not report its capability");
    case Rejection::feature: return feature_detail(requirements, *view.info);
    case Rejection::held:
      if (view.held_exclusively) return "held exclusively";
      return "held by " + std::to_string(view.holders) +
             (view.holders == 1 ? " lease or open pool" : " leases or open pools") + ", exclusive use requested";
    case Rejection::kept: return "reserved for a request that has waited longer";
    case Rejection::occupied: return occupied_detail(view);
    case Rejection::memory: return memory_detail(requirements, view);
  }
  return {};
}

// The stage after a filter, and whether it is shown although no device was rejected.
std::pair<std::string, bool> stage_of(Rejection filter, const Requirements& requirements) {
  switch (filter) {
    case Rejection::not_selected:
      return {"selected", !requirements.only.empty() || !requirements.avoid.empty() || !requirements.backends.empty()};
    case Rejection::not_in_service: return {"in service", false};
    case Rejection::unhealthy: return {"healthy", false};
    case Rejection::stale: return {"with fresh load", false};
    case Rejection::capability:
      if (!requirements.capability_min) break;
      return {"of capability " + to_string(*requirements.capability_min), true};
    case Rejection::feature: return {"with " + wanted_features(requirements), !wanted_features(requirements).empty()};
    case Rejection::held:
      return {requirements.is_exclusive() ? "not held" : "not held exclusively", requirements.is_exclusive()};
    case Rejection::kept: return {"not reserved for earlier requests", false};
    case Rejection::occupied: return {"unused", requirements.whole};
    case Rejection::memory: return {"fit " + wanted_memory(requirements), !wanted_memory(requirements).empty()};
  }
  return {};
}

bool any_has_backend(const Explanation& explanation) {
  const std::vector<std::string>& any = explanation.requirements.backends;
  return std::any_of(explanation.candidates.begin(), explanation.candidates.end(), [&](const auto& candidate) {
    return std::find(any.begin(), any.end(), candidate.backend) != any.end();
  });
}

std::vector<Cause> causes_in_order(Causes causes) {
  std::vector<Cause> out;
  for (unsigned i = 0; causes >> i != 0; ++i) {
    if (causes >> i & 1) out.push_back(static_cast<Cause>(i));
  }
  return out;
}

std::string padded(std::string text, std::size_t width, bool right) {
  const std::string space(width > text.size() ? width - text.size() : 0, ' ');
  return right ? space + text : text + space;
}

// If the order of the user (order_by_id) decided between devices of equal cost; otherwise empty.
std::string tie_detail(const Policy& policy, std::span<const DeviceView> views, std::span<const Ranked> order) {
  const Ranked& winner = order.front();
  // Devices that others use are ordered by their load instead.
  if (!winner.cost || winner.used_by_others || policy.ticket != TicketKind::none || policy.ties != Ties::stable_id)
    return {};
  std::size_t equal = 0;
  bool lowest_id = true;
  for (const Ranked& other : order.subspan(1)) {
    if (other.cost != winner.cost || other.preferred != winner.preferred || other.distance != winner.distance ||
        other.used_by_others)
      continue;
    ++equal;
    lowest_id = lowest_id && views[winner.position].info->id < views[other.position].info->id;
  }
  if (lowest_id) return {};
  return "same cost as " + count_of(equal, "other") + ", first in the order for this user";
}

struct ExplanationToShare final : SharedExplanation::Shared {
  explicit ExplanationToShare(Explanation explained) : value(std::move(explained)) {}
  const Explanation& explanation() const noexcept override { return value; }
  const Explanation value;
};

}  // namespace

SharedExplanation::SharedExplanation(Explanation explanation)
    : shared_(new ExplanationToShare(std::move(explanation))) {}

std::string_view to_string(Rejection rejection) noexcept {
  // In the order of the enumerators.
  static constexpr std::string_view names[] = {"not_selected", "not_in_service", "unhealthy", "stale",    "capability",
                                               "feature",      "held",           "kept",      "occupied", "memory"};
  return names[static_cast<std::size_t>(rejection)];
}

Explanation placement::explain(const Policy& policy, const Requirements& requirements, std::size_t count,
                               std::span<const DeviceView> views, Ticket ticket, const Ranking& ranking,
                               const GroupDecision& decision) {
  Explanation result;
  result.policy = policy.name;
  result.ticket = ticket;
  result.requirements = requirements;
  result.count = count;
  result.policy_misbehaved = decision.policy_misbehaved;

  std::array<std::size_t, std::size(filters)> rejected{};
  for (const DeviceView& view : views) {
    const auto rejection = reject(requirements, view);
    if (rejection) ++rejected[static_cast<std::size_t>(*rejection)];
    result.candidates.push_back({view.info->id, rejection, causes_in_order(causes_of(requirements, view)),
                                 detail_of(requirements, view, rejection), std::nullopt, view.in_flight,
                                 view.memory_bytes_available(), view.info->memory_bytes_total, view.info->backend});
  }

  std::size_t left = views.size();
  result.funnel.push_back({left == 1 ? "device" : "devices", left});
  for (const Rejection filter : filters) {
    const std::size_t out = rejected[static_cast<std::size_t>(filter)];
    left -= out;
    const auto [name, is_asked] = stage_of(filter, requirements);
    if (out > 0 || is_asked) result.funnel.push_back({name, left});
  }
  if (count > 1) {
    const std::string group = count == 2 ? "pair" : "group of " + std::to_string(count);
    result.funnel.push_back(
        decision.winners.empty()
            ? Explanation::Stage{"of the " + std::to_string(count) + " requested", largest_group(requirements, views)}
            : Explanation::Stage{group, 1});
  }

  if (decision.winners.empty()) {
    const bool declined = count == 1 && left > 0;
    if (!declined) result.cause = cause_of(requirements, count, views);
    return result;
  }
  for (const std::size_t winner : decision.winners) result.winners.push_back(views[winner].info->id);
  result.winner = result.winners.front();
  const std::size_t last_winner = decision.winners.back();
  for (const Ranked& ranked : ranking.order) {
    Explanation::Candidate& candidate = result.candidates[ranked.position];
    candidate.cost = ranked.cost;
    const auto& winners = decision.winners;
    const bool is_winner = std::find(winners.begin(), winners.end(), ranked.position) != winners.end();
    if (ranked.used_by_others) {
      // Devices that others use are ordered by their load (id_order) if the policy sees no difference.
      const bool by_load = !is_winner && views[last_winner].used_by_others && ranked.cost &&
                           ranked.cost == result.candidates[last_winner].cost;
      candidate.detail += (candidate.detail.empty() ? "" : ", ") + std::string("others use it") +
                          (by_load ? " more than " + result.candidates[last_winner].device.text() : "");
    }
    if (!result.runner_up && !is_winner) result.runner_up = views[ranked.position].info->id;
  }
  if (count == 1 && !decision.policy_misbehaved) {
    std::string& detail = result.candidates[last_winner].detail;
    const std::string tie = tie_detail(policy, views, ranking.order);
    detail += (detail.empty() || tie.empty() ? "" : ", ") + tie;
  }
  return result;
}

std::string Explanation::reason() const {
  const auto eligible = static_cast<std::size_t>(
      std::count_if(candidates.begin(), candidates.end(), [](const Candidate& c) { return !c.rejection; }));
  if (winner) {
    std::string text = policy_misbehaved ? "least_loaded, because " + policy + " chose no eligible device," : policy;
    text += " chose ";
    for (const DeviceId& id : winners) text += (id == winners.front() ? "" : ", ") + id.text();
    if (!runner_up) return text + (count == 1 ? ", the only eligible device" : ", all of the eligible devices");
    return text + " among " + count_of(eligible, "eligible device") + "; next is " + runner_up->text();
  }
  if (!cause)
    return eligible ? policy + " declined " + count_of(eligible, "eligible device") : "there is nothing to explain";
  if (candidates.empty()) return "there are no devices";
  if (*cause == Cause::too_few_devices) {
    return count_of(count, "device") + " were requested, but there " + (candidates.size() == 1 ? "is" : "are") +
           " only " + std::to_string(candidates.size());
  }
  std::string prefix;
  if (count > 1) {
    const std::size_t left = funnel.back().left;
    prefix = (left == 0 ? "none" : "only " + std::to_string(left)) + " of the " + std::to_string(count) +
             " requested devices " + (left < 2 ? "is" : "are") + " available: ";
  }
  if (*cause == Cause::memory_shared)
    return prefix + "parts of one device share its memory, which has no room for all of them";

  // Prefer devices that only this cause rejects, if there are any.
  const auto filter = filter_of(*cause);
  std::vector<const Candidate*> kept_out, nearest;
  for (const Candidate& candidate : candidates) {
    if (candidate.rejection == filter) kept_out.push_back(&candidate);
    if (candidate.causes == std::vector{*cause}) nearest.push_back(&candidate);
  }
  const bool all = kept_out.size() == candidates.size();
  // The most available memory counts on every device that only memory rejects, whoever has the rest.
  const bool is_in_use = *cause == Cause::memory_in_use || *cause == Cause::memory_promised;
  if (!nearest.empty() && !is_in_use) kept_out = nearest;
  // If some devices were not selected, the sentence is about the selected ones.
  const bool some_left_out = std::any_of(candidates.begin(), candidates.end(), [](const Candidate& candidate) {
    return candidate.rejection == Rejection::not_selected;
  });
  const std::string devices = eligible > 0    ? "other device "
                              : all           ? "device "
                              : some_left_out ? "selected device "
                                              : "suitable device ";
  const std::string subject = prefix + "no " + devices, every = prefix + "every " + devices;
  // One device is given as an example; the table lists them all.
  const auto example = [&] {
    if (kept_out.empty()) return std::string();
    std::string text = " (" + kept_out.front()->device.text() + ": " + kept_out.front()->detail;
    if (kept_out.size() > 1) text += "; " + std::to_string(kept_out.size() - 1) + " more";
    return text + ")";
  };
  const auto largest = [&](OptionalU64 Candidate::* amount) {
    const Candidate* most = nullptr;
    for (const Candidate* candidate : kept_out) {
      if (!(candidate->*amount)) continue;
      if (most == nullptr || *(candidate->*amount) > *(most->*amount)) most = candidate;
    }
    if (most == nullptr) return example();
    if (*(most->*amount) == 0) return std::string();
    return " (largest: " + bytes_text(*(most->*amount)) + " on " + most->device.text() + ")";
  };
  const auto any_has = [&](Cause wanted) {
    return std::any_of(kept_out.begin(), kept_out.end(), [&](const Candidate* candidate) {
      return std::find(candidate->causes.begin(), candidate->causes.end(), wanted) != candidate->causes.end();
    });
  };
  const std::string free = subject + "has " + wanted_memory(requirements) + " free";
  switch (*cause) {
    case Cause::backend:
      if (!any_has_backend(*this))
        return prefix + "there is no " + wanted_backends(requirements) + " device" + example();
      [[fallthrough]];
    case Cause::pinned:
    case Cause::avoided: return prefix + (eligible > 0 ? "no other device" : "no device") + " is selected" + example();
    case Cause::cordoned:
    case Cause::draining: return subject + "is in service" + example();
    case Cause::quarantined:
    case Cause::lost:
    case Cause::probation: return subject + "is healthy" + example();
    case Cause::stale: return subject + "has reported its load recently" + example();
    case Cause::capability: return subject + "has capability " + to_string(*requirements.capability_min) + example();
    case Cause::feature:
    case Cause::label: return subject + "has " + wanted_features(requirements) + example();
    case Cause::held: return every + "is already leased" + example();
    case Cause::held_exclusively: return every + "is held exclusively" + example();
    case Cause::kept:
      if (all || nearest.empty()) return every + "is reserved for earlier requests" + example();
      return prefix + "every device with room is reserved for earlier requests" + example();
    case Cause::silent: return subject + "reports whether it is in use" + example();
    case Cause::occupied: return every + "is in use" + example();
    case Cause::memory_unknown: return free + example();
    case Cause::memory_too_small:
      return subject + "has " + wanted_memory(requirements) + " in total" + largest(&Candidate::memory_bytes_total);
    case Cause::memory_in_use:
    case Cause::memory_promised: {
      const bool in_use = any_has(Cause::memory_in_use), promised = any_has(Cause::memory_promised);
      return free +
             (in_use && promised ? ", because the memory is promised or used by processes"
              : promised         ? ", because the memory is promised"
                                 : ", because processes use the memory") +
             largest(&Candidate::memory_bytes_available);
    }
    case Cause::memory_fragmented:
      return free + ", although all of them together have that much" + largest(&Candidate::memory_bytes_available);
    case Cause::too_few_devices:
    case Cause::memory_shared: break;
  }
  return free;
}

std::string Explanation::advice() const {
  if (!cause) return winners.empty() ? "use another policy" : "there is nothing to do";
  switch (*cause) {
    case Cause::too_few_devices: return candidates.empty() ? "run berth doctor to see why" : "request fewer devices";
    case Cause::backend: {
      if (any_has_backend(*this)) break;
      std::vector<std::string_view> names;
      std::string list;
      for (const Candidate& candidate : candidates) {
        if (std::find(names.begin(), names.end(), candidate.backend) != names.end()) continue;
        names.push_back(candidate.backend);
        list += (list.empty() ? "" : ", ") + candidate.backend;
      }
      if (const auto nearest = nearest_name(requirements.backends.front(), names))
        return "did you mean \"" + std::string(*nearest) + "\"?";
      return std::string(names.size() == 1 ? "the available back end is " : "the available back ends are ") + list;
    }
    case Cause::cordoned:
    case Cause::draining: return "put it back in service, or request another device";
    case Cause::pinned:
    case Cause::avoided:
    case Cause::capability:
    case Cause::feature:
    case Cause::label:
    case Cause::memory_too_small: return "request less, or another device";
    default: break;
  }
  return "wait for a release, or request less";
}

std::string Explanation::funnel_text() const {
  std::string text;
  for (const Stage& stage : funnel) {
    text += (text.empty() ? "" : " -> ") + std::to_string(stage.left) + " " + stage.name;
  }
  if (count > 1 && !winner) return text;
  text += count > 1 ? ": " : " -> ";
  for (const DeviceId& id : winners) text += (id == winners.front() ? "" : ", ") + id.text();
  return winner ? text : text + "none";
}

std::string Explanation::to_text() const { return reason() + "\n" + funnel_text() + "\n" + table_text(); }

std::string Explanation::table_text() const {
  std::string text;
  if (candidates.empty()) return text;
  using Row = std::array<std::string, 6>;
  std::vector<Row> rows{{"device", "verdict", "cost", "in flight", "available", "detail"}};
  for (const Candidate& candidate : candidates) {
    std::string verdict = candidate.rejection ? std::string(to_string(*candidate.rejection)) : "eligible";
    if (std::find(winners.begin(), winners.end(), candidate.device) != winners.end()) verdict = "winner";
    if (runner_up == candidate.device) verdict = "runner-up";
    const bool last = candidate.cost == std::numeric_limits<std::uint64_t>::max();
    rows.push_back({candidate.device.text(), verdict,
                    !candidate.cost ? "-"
                    : last          ? "last"
                                    : std::to_string(*candidate.cost),
                    std::to_string(candidate.in_flight),
                    candidate.memory_bytes_available ? bytes_text(*candidate.memory_bytes_available) : "unknown",
                    candidate.detail});
  }
  Row::size_type column = 0;
  std::array<std::size_t, std::tuple_size_v<Row>> width{};
  for (; column < width.size(); ++column) {
    for (const Row& row : rows) width[column] = std::max(width[column], row[column].size());
  }
  for (const Row& row : rows) {
    std::string line;
    for (column = 0; column < row.size(); ++column) {
      line += (column > 0 ? "  " : "") + padded(row[column], width[column], column >= 2 && column <= 4);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace berth
