#include "deployment/spec_description.hpp"

#include <algorithm>
#include <type_traits>

namespace berth::deployment {
namespace {

template <world::Described Noun>
world::Effect effect_between(const Noun& before, const Noun& after) {
  world::Effect strongest = world::Effect::nothing;
  world::for_each_field<Noun>(
      [&](const auto& field, const auto& a, const auto& b) {
        const auto &old_value = a.*field.member, &new_value = b.*field.member;
        if (old_value == new_value) return;
        if constexpr (world::Described<std::remove_cvref_t<decltype(old_value)>>) {
          strongest = std::max(strongest, effect_between(old_value, new_value));
        } else {
          strongest = std::max(strongest, field.effect);
        }
      },
      before, after);
  return strongest;
}

}  // namespace

world::Effect effect_of_change(const DeploymentSpec& before, const DeploymentSpec& after) {
  return effect_between(before, after);
}

std::vector<std::string_view> changed_fields(const DeploymentSpec& before, const DeploymentSpec& after) {
  std::vector<std::string_view> changed;
  world::for_each_field<DeploymentSpec>(
      [&](const auto& field, const DeploymentSpec& a, const DeploymentSpec& b) {
        if (!(a.*field.member == b.*field.member)) changed.push_back(field.name);
      },
      before, after);
  std::sort(changed.begin(), changed.end());
  return changed;
}

std::string_view name_in_file(std::string_view name) {
  std::string_view found = name;
  world::for_each_field<DeploymentSpec>([&](const auto& field) {
    if (field.name == name) found = field.key;
  });
  return found;
}

}  // namespace berth::deployment
