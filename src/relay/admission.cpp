#include "relay/admission.hpp"

#include <utility>

#include "berth/assert.hpp"

namespace berth::relay {

void Admission::set(std::vector<Target> targets) {
  for (auto& [name, entry] : entries_) entry.is_listed = false;
  for (Target& target : targets) {
    Entry& entry = entries_[target.name];
    entry.target = std::move(target);
    entry.is_listed = true;
  }
  std::erase_if(entries_, [](const auto& item) { return !item.second.is_listed && item.second.in_flight == 0; });
}

Admission::Answer Admission::admit(std::string_view name) {
  const auto found = entries_.find(name);
  if (found == entries_.end() || !found->second.is_listed) return Answer::unknown;
  Entry& entry = found->second;
  if (entry.target.is_draining) return Answer::draining;
  if (entry.in_flight + entry.target.in_flight_elsewhere >= entry.target.concurrent_max) return Answer::full;
  ++entry.in_flight;
  return Answer::admitted;
}

void Admission::end(std::string_view name) {
  const auto found = entries_.find(name);
  BERTH_ASSERT(found != entries_.end() && found->second.in_flight > 0);
  if (--found->second.in_flight == 0 && !found->second.is_listed) entries_.erase(found);
}

Admission::Load Admission::load(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return {};
  const Target& target = found->second.target;
  return {found->second.in_flight + target.in_flight_elsewhere, target.concurrent_max};
}

const Target* Admission::find(std::string_view name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() || !found->second.is_listed ? nullptr : &found->second.target;
}

std::map<std::string, std::uint32_t> Admission::in_flight() const {
  std::map<std::string, std::uint32_t> all;
  for (const auto& [name, entry] : entries_) all[name] = entry.in_flight;
  return all;
}

std::string_view to_string(Admission::Answer answer) noexcept {
  switch (answer) {
    case Admission::Answer::admitted: return "admitted";
    case Admission::Answer::unknown: return "unknown";
    case Admission::Answer::draining: return "draining";
    case Admission::Answer::full: return "full";
  }
  return "";
}

}  // namespace berth::relay
