// Which deployment a request is for: by host, then by the longest path prefix, then by the model that its body names.
// Pure. Two deployments that claim the same requests conflict: neither gets them, and both report it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/endpoints.hpp"

namespace berth::gateway {

class Routes {
 public:
  Routes() = default;
  explicit Routes(const std::map<DeploymentId, Deployment>& deployments);

  struct Asked {
    std::string_view host;  // without a port, lower case
    std::string_view path;  // decoded, without the query
  };
  // Decides by host and path alone. Absent: the body decides, or nothing matches.
  std::optional<DeploymentId> by_address(const Asked& asked) const;
  std::optional<DeploymentId> by_model(std::string_view model) const;
  // Whether several deployments serve the model, so that it does not identify one.
  bool is_shared(std::string_view model) const { return shared_models_.contains(model); }

  // Messages about deployments that get no requests because of a conflict.
  const std::vector<std::string>& conflicts() const { return conflicts_; }
  // Names in alphabetical order, for /v1/models.
  std::vector<std::string> models() const;

 private:
  struct Prefix {
    std::optional<std::string> host;
    std::string path;  // without a trailing slash; empty: all
    DeploymentId deployment;
  };
  std::vector<Prefix> prefixes_;  // the most specific first
  std::map<std::string, DeploymentId, std::less<>> models_;
  std::set<std::string, std::less<>> shared_models_;
  std::vector<std::string> conflicts_;
};

}  // namespace berth::gateway
