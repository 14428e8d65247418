#include "gateway/routes.hpp"

#include <algorithm>
#include <tuple>

namespace berth::gateway {
namespace {

std::string trimmed(std::string path) {
  while (path.ends_with('/')) path.pop_back();
  return path;
}

bool is_below(std::string_view path, std::string_view prefix) {
  return path.starts_with(prefix) && (path.size() == prefix.size() || path[prefix.size()] == '/');
}

}  // namespace

Routes::Routes(const std::map<DeploymentId, Deployment>& deployments) {
  std::map<std::pair<std::string, std::string>, std::vector<DeploymentId>> by_address;
  std::map<std::string, std::vector<DeploymentId>> by_model;
  for (const auto& [name, deployment] : deployments) {
    if (deployment.serving.host || deployment.serving.path)
      by_address[{deployment.serving.host.value_or(""), trimmed(deployment.serving.path.value_or(""))}].push_back(name);
    by_model[name.text()].push_back(name);
    if (!deployment.model.empty() && deployment.model != name.text()) by_model[deployment.model].push_back(name);
  }
  for (auto& [address, names] : by_address) {
    const auto& [host, path] = address;
    if (names.size() == 1) {
      prefixes_.push_back({host.empty() ? std::nullopt : std::optional(host), path, names.front()});
      continue;
    }
    conflicts_.push_back(names[0].text() + " and " + names[1].text() + " both claim the requests" +
                         (host.empty() ? "" : " for " + host) + (path.empty() ? "" : " below " + path) +
                         ", so neither gets them; change serving.host or serving.path of one");
  }
  for (auto& [model, names] : by_model) {
    // A deployment always owns its name, whatever models others serve.
    const auto own =
        std::find_if(names.begin(), names.end(), [&](const DeploymentId& id) { return id.text() == model; });
    if (names.size() == 1 || own != names.end()) {
      models_.emplace(model, own != names.end() ? *own : names.front());
      continue;
    }
    shared_models_.insert(model);
    conflicts_.push_back("the model " + model + " is served by " + names[0].text() + " and " + names[1].text() +
                         ", so requests must name one of these as their model");
  }
  std::sort(prefixes_.begin(), prefixes_.end(), [](const Prefix& a, const Prefix& b) {
    return std::tuple(!a.host.has_value(), b.path.size(), a.path) <
           std::tuple(!b.host.has_value(), a.path.size(), b.path);
  });
}

std::optional<DeploymentId> Routes::by_address(const Asked& asked) const {
  for (const Prefix& prefix : prefixes_)
    if ((!prefix.host || *prefix.host == asked.host) && is_below(asked.path, prefix.path)) return prefix.deployment;
  return std::nullopt;
}

std::optional<DeploymentId> Routes::by_model(std::string_view model) const {
  const auto found = models_.find(model);
  return found == models_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::string> Routes::models() const {
  std::vector<std::string> names;
  for (const auto& [model, deployment] : models_) names.push_back(model);
  return names;
}

}  // namespace berth::gateway
