// What the Store keeps under which key. All of it but the events is below "state/", so that one listing shows one
// moment of it:
//   meta/schema                        the number of this layout, and the version of Berth that wrote it
//   state/project                      version, names, and which record of each deployment counts
//   state/deployment/<name>/<version>  a deployment as that version of the project wants it
//   state/node/<name>                  a node, and the operator's intent for it
//   state/assignments/<node>           changes with each change of the node's assignments
//   state/assigned/<node>/<deployment>/<replica>/<generation>  one incarnation that it must run or stop
//   state/counters                     generations and events: the next numbers
//   state/leader                       who leads, and the epoch
//   state/credential/<id>              the hash of a token
//   event/<20 digits>                  an event; the newest 10,000 are kept
//   action/<20 digits>                 an event that a person caused; the newest 10,000 are kept, whatever else happens
// Every record is bounded (fleet/bounds.hpp), so that no node or deployment grows beyond what a store takes. The name
// of an incarnation is in its key: one whose value is damaged can still be stopped. Values are JSON documents. No
// secret is in any of them: credentials are hashes, and deployments name the places of their secrets.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "berth/ids.hpp"
#include "berth/result.hpp"
#include "fleet/fleet.hpp"
#include "store/engine.hpp"

namespace berth::store {

namespace keys {
inline constexpr std::string_view schema = "meta/schema";
inline constexpr std::string_view restoring = "meta/restoring";  // present while a restore is in progress
inline constexpr std::string_view state = "state/";
inline constexpr std::string_view project = "state/project";
inline constexpr std::string_view counters = "state/counters";
inline constexpr std::string_view leader = "state/leader";
inline constexpr std::string_view deployments = "state/deployment/";
inline constexpr std::string_view nodes = "state/node/";
inline constexpr std::string_view assignments = "state/assignments/";
inline constexpr std::string_view assigned = "state/assigned/";
inline constexpr std::string_view credentials = "state/credential/";
inline constexpr std::string_view events = "event/";
inline constexpr std::string_view actions = "action/";
std::string deployment(const DeploymentId& name, std::uint64_t version);
std::string node(const NodeId& name);
std::string assignments_of(const NodeId& node);
std::string assigned_to(const NodeId& node);  // prefix of the keys of its incarnations
std::string incarnation(const fleet::Assigned& assigned);
// Parses the key of an incarnation; absent: it is not such a key.
std::optional<fleet::Assigned> incarnation_at(std::string_view key);
std::string credential(std::string_view id);
std::string event(std::uint64_t id);
std::string action(std::uint64_t id);
std::optional<std::uint64_t> action_at(std::string_view key);
}  // namespace keys

// The root of the desired state. Records of deployments that it does not name are ignored: they are left over from an
// incomplete change, and are removed when a server becomes leader.
struct ProjectRoot {
  std::uint64_t version = 0;
  std::string cluster;
  EgressPreference egress_preference;
  std::map<DeploymentId, std::uint64_t> deployments;  // with the version of the project that wrote the record
  UnknownFields unknown = {};
};

struct Counters {
  std::uint64_t next_generation = 1;
  std::uint64_t next_event = 1;
  UnknownFields unknown = {};
};

struct Leader {
  std::string server;
  std::uint64_t epoch = 0;
  UnknownFields unknown = {};
};

std::string text_of(const ProjectRoot& root);
std::string text_of(const Counters& counters);
std::string text_of(const Leader& leader);
std::string text_of(const fleet::Assigned& assigned);
std::string head_text();  // at keys::assignments_of(): its version is what counts
std::string text_of(const fleet::DesiredDeployment& wanted);
std::string text_of(const fleet::NodeRecord& record);
std::string text_of(const fleet::Credential& credential);
std::string text_of(const fleet::Event& event);

// io: the entry was not written by a Store; not_supported: a newer version wrote it.
Result<ProjectRoot> project_root_of(const Entry& entry);
Result<Counters> counters_of(const Entry& entry);
Result<Leader> leader_of(const Entry& entry);
Result<fleet::Assigned> assigned_of(const Entry& entry);
Result<fleet::DesiredDeployment> wanted_of(const Entry& entry);
Result<fleet::NodeRecord> node_record_of(const Entry& entry);
Result<fleet::Credential> credential_of(const Entry& entry);
Result<fleet::Event> event_of(const Entry& entry);

}  // namespace berth::store
