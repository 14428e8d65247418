#include "server/acceptance.hpp"

#include <boost/json.hpp>

#include "fleet/bounds.hpp"
#include "fleet_format/fleet_json.hpp"
#include "format/json_text.hpp"
#include "world/printable.hpp"

namespace berth::server {
namespace {

std::size_t bytes_of(const DeploymentSpec& spec) { return boost::json::serialize(format::spec_to_json(spec)).size(); }

std::string kib(std::size_t bytes) { return std::to_string((bytes + 1023) >> 10) + " KiB"; }

Error too_much(std::string what, std::string advice) {
  return {ErrorCode::invalid_argument, std::move(what), std::move(advice)};
}

}  // namespace

Result<void> check_acceptable(const fleet::Desired& desired) {
  std::size_t project = desired.cluster.size() +
                        boost::json::serialize(format::egress_preference_to_json(desired.egress_preference)).size();
  std::uint64_t replicas = 0, orders = 0;
  for (const auto& [name, wanted] : desired.deployments) {
    const std::size_t bytes = bytes_of(wanted.spec);
    if (bytes > fleet::spec_bytes_max)
      return too_much("deployment \"" + name.text() + "\" has " + kib(bytes) + " of settings; a server keeps at most " +
                          kib(fleet::spec_bytes_max),
                      "put long texts into a file that its command reads");
    project += name.text().size() + 32;  // and its version number
    replicas += wanted.spec.replicas;
    orders += wanted.spec.replicas * std::uint64_t{bytes};
  }
  if (project > fleet::project_bytes_max)
    return too_much("the names of the deployments and the egress preference have " + kib(project) +
                        "; a server keeps at most " + kib(fleet::project_bytes_max),
                    "use fewer deployments or shorter names");
  if (replicas > fleet::project_replicas_max)
    return too_much("the project has " + std::to_string(replicas) + " replicas; the maximum is " +
                        std::to_string(fleet::project_replicas_max),
                    "request fewer");
  if (orders > fleet::orders_bytes_max)
    return too_much("the settings of all replicas have " + kib(orders) + "; a server sends at most " +
                        kib(fleet::orders_bytes_max) + " to a node",
                    "request fewer replicas, or put long texts into files that their commands read");
  return {};
}

fleet::DesiredDeployment fitted(fleet::DesiredDeployment wanted) {
  if (wanted.earlier.size() > fleet::earlier_max) wanted.earlier.resize(fleet::earlier_max);
  std::size_t bytes = bytes_of(wanted.spec) + wanted.shards.value_or("").size(), kept = 0;
  while (kept < wanted.earlier.size() && (bytes += bytes_of(wanted.earlier[kept])) <= fleet::wanted_bytes_max) ++kept;
  wanted.earlier.resize(kept);
  return wanted;
}

std::string bounded_reason(std::string reason) {
  return world::shortened(std::move(reason), fleet::sentence_bytes_max);
}

}  // namespace berth::server
