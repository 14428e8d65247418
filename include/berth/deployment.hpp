// Deployment: which replicas run on which GPUs of which nodes. The input is plain data: what is wanted (the specs),
// what exists (the fleet) and what runs (the current assignments). The output is a Plan: assignments, what is pending
// and why, and the smallest list of actions that leads there. Pure: no clock, no files, no random source. The GPUs of
// a node are chosen by asking placement about that node's devices. A plan never puts two replicas on a GPU that one of
// them holds exclusively and never promises more bytes than a device has; "does not fit" is part of the plan, never an
// error. All names are in berth::deployment, because many of them are common words.
#pragma once

#include "berth/version.hpp"

#include <chrono>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "berth/clock.hpp"
#include "berth/device_info.hpp"
#include "berth/device_view.hpp"
#include "berth/ids.hpp"
#include "berth/result.hpp"
#include "berth/topology.hpp"

namespace berth::deployment {

// What runs the model. A runtime that this version does not know becomes `unknown`, so that the error about a newer
// file can name it.
enum class RuntimeKind : std::uint8_t {
  vllm,
  tensor_rt,
  ort,
  candle,
  cudarc,
  mistral_rs,
  python,
  custom,
  process,
  library,
  simulated,
  open_ai,
  anthropic,
  gemini,
  lite_llm,
  http,
  unknown,
};

struct Runtime {
  RuntimeKind kind = RuntimeKind::process;
  std::string name;  // of python and custom: the part after the colon; of unknown: the whole text
  friend bool operator==(const Runtime&, const Runtime&) = default;
};
// Reads "vllm", "open_ai", "python:diffusers" or "custom:mine"; any other text gives `unknown`.
Runtime runtime_from(std::string_view text);
std::string to_string(const Runtime& runtime);
// Infers the runtime from the model's name, ignoring case; the table is in docs/guide/deployment.md. A name that the
// table does not cover gives `process`.
Runtime infer_runtime(std::string_view model);

// The provider whose servers a remote runtime calls.
enum class Provider : std::uint8_t { open_ai, anthropic, gemini, lite_llm, http };
std::string_view to_string(Provider provider) noexcept;
std::optional<Provider> provider_named(std::string_view name);

struct LocalGpu {
  friend bool operator==(const LocalGpu&, const LocalGpu&) = default;
};
struct LocalCpu {
  friend bool operator==(const LocalCpu&, const LocalCpu&) = default;
};
struct Remote {
  Provider provider;
  friend bool operator==(const Remote&, const Remote&) = default;
};
struct UnknownTransport {
  friend bool operator==(const UnknownTransport&, const UnknownTransport&) = default;
};
using Transport = std::variant<LocalGpu, LocalCpu, Remote, UnknownTransport>;

// Where a credential is kept, never the credential: "env:OPENAI_KEY" or "file:/run/secrets/key". Text that looks like
// a key itself is refused, and the error does not repeat it.
class KeyRef {
 public:
  static Result<KeyRef> parse(std::string_view text);
  const std::string& text() const noexcept { return text_; }
  friend bool operator==(const KeyRef&, const KeyRef&) = default;
  friend auto operator<=>(const KeyRef&, const KeyRef&) = default;
  friend std::ostream& operator<<(std::ostream& out, const KeyRef& key) { return out << key.text_; }

 private:
  explicit KeyRef(std::string text) : text_(std::move(text)) {}
  std::string text_;
};

// How replicas are distributed over the nodes. spread: as few replicas of the deployment on one
// node as possible. pack: fill a node before the next one. one_per_node: spread, and two replicas
// never share a node.
enum class Spread : std::uint8_t { spread, pack, one_per_node };
// all: new replicas start together or not at all. best_effort: as many as fit. Neither stops replicas that already
// run.
enum class OnShortage : std::uint8_t { all, best_effort };
enum class OnCapacityExhausted : std::uint8_t { queue, reject, fallback };
// Where a request goes if the replica of its key is full or cannot serve. bounded_load: to the next replica in an
// order that is fixed for the key. strict: to no other replica; the request waits or is rejected.
enum class Affinity : std::uint8_t { bounded_load, strict };
// How gateways reach a replica. relay: through the relay of its node, which needs no open port. direct: at a port of
// its node.
enum class Reach : std::uint8_t { relay, direct };
std::string_view to_string(Spread spread) noexcept;
std::string_view to_string(OnShortage on_shortage) noexcept;
std::string_view to_string(OnCapacityExhausted on_capacity_exhausted) noexcept;
std::string_view to_string(Affinity affinity) noexcept;
std::string_view to_string(Reach reach) noexcept;

// Fields that a newer version of Berth wrote, by name, as JSON. They are kept, so that nothing is lost when an older
// version writes the record again, and have no other use.
using UnknownFields = std::map<std::string, std::string>;

struct ServingOptions {
  std::uint32_t max_concurrent = 32;  // requests in flight per replica
  OnCapacityExhausted on_capacity_exhausted = OnCapacityExhausted::queue;
  std::optional<DeploymentId> fallback;               // takes over; set if and only if the field above is `fallback`
  std::optional<std::string> policy = {};             // how a gateway chooses a replica; absent: least_loaded
  std::optional<std::string> host = {};               // requests for this host name are for this deployment
  std::optional<std::string> path = {};               // requests below this path ("/chat") are for this deployment
  bool open = false;                                  // callers on the gateway's own machine need no key
  Duration queue_timeout = std::chrono::seconds(30);  // how long a request waits for a replica
  std::uint32_t queue_max = 1000;                     // the most waiting requests at each gateway
  // The longest time until a replica begins to answer a request, and between two pieces of its answer.
  Duration first_byte_timeout = std::chrono::minutes(10);
  Duration idle_timeout = std::chrono::minutes(10);
  // Where a request carries its key: "header:x-session", "cookie:sid" or "json:user". Requests with the same key reach
  // the same replica. Absent: every request goes where the policy sends it.
  std::optional<std::string> key = {};
  Affinity affinity = Affinity::bounded_load;
  UnknownFields unknown = {};
  Reach reach = Reach::relay;
  friend bool operator==(const ServingOptions&, const ServingOptions&) = default;
};

// How to check whether a running replica can serve (readiness) or must be restarted (liveness). Exactly one of
// http, tcp and command is used.
struct Probe {
  std::optional<std::string> http;    // a path: a status of 200 to 399 is success
  bool tcp = false;                   // an accepted connection is success
  std::vector<std::string> command;   // exit status 0 is success; runs in the environment of the replica
  std::optional<std::uint16_t> port;  // of http and tcp; absent: the replica's own {port}
  Duration every = std::chrono::seconds(2);
  Duration timeout = std::chrono::seconds(2);
  std::uint32_t failures = 3;  // failures in a row until the probe counts as failed
  UnknownFields unknown = {};
  friend bool operator==(const Probe&, const Probe&) = default;
};

// How many replicas above and below the wanted number are allowed while replicas are replaced.
struct Rollout {
  std::uint32_t surge = 1;
  std::uint32_t unavailable = 1;
  UnknownFields unknown = {};
  friend bool operator==(const Rollout&, const Rollout&) = default;
};

struct DeploymentSpec {
  DeploymentId name;
  std::string model;                  // may be empty if there is a command
  std::optional<Runtime> runtime;     // absent: inferred from the model's name
  std::optional<std::uint32_t> gpus;  // per replica; absent: 1. Ignored by remote runtimes
  std::uint32_t replicas = 1;
  bool cpu = false;                // states that a local runtime needs no GPU
  std::uint64_t memory_bytes = 0;  // per GPU, or on the node in CPU mode; 0: not stated
  std::optional<Capability> capability_min;
  std::map<std::string, std::string> node_selector;  // labels a node must have
  std::map<std::string, std::string> device_labels;  // labels a GPU must have
  std::set<std::string> tolerates;                   // node taints that do not exclude a node
  // A replica has its GPUs to itself; false: it shares them with others, each within its own bytes. In a project
  // file, a deployment that states `memory` shares unless it sets `exclusive`.
  bool exclusive = true;
  Spread spread = Spread::spread;
  // How the GPUs of a node are ranked; absent: best_fit for exclusive GPUs and when packing, spread
  // otherwise.
  std::optional<std::string> policy;
  Priority priority = Priority::normal;  // high is placed first; nothing that runs is evicted
  OnShortage on_shortage = OnShortage::all;
  bool idempotent = false;    // a request may run twice
  std::optional<KeyRef> key;  // remote runtimes only
  ServingOptions serving;

  // The command that a node starts for a replica. {port}, {gpus}, {memory_bytes}, {memory_fraction}, {name} and
  // {replica} are replaced in it and in the command of a probe (deployment/command.hpp). Empty: nothing is started; a
  // remote runtime needs no command.
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;
  std::map<std::string, KeyRef> secrets;  // environment variables, and where each value is kept on the node
  std::optional<std::string> user;        // absent: the agent's
  std::optional<std::string> folder;      // absent: the home folder of the user
  std::optional<Probe> readiness;         // absent: ready when it has run for 2 s
  std::optional<Probe> liveness;
  Duration ready_within = std::chrono::minutes(10);  // with a readiness probe; not ready by then means failed
  // A replica that was ready has failed when its readiness probe has failed for this long. Absent: it never fails for
  // this reason. Project files have their own default (unready_within_in_files).
  std::optional<Duration> unready_within = {};
  Duration stop_grace = std::chrono::seconds(10);  // from SIGTERM to SIGKILL
  std::optional<std::uint64_t> host_memory_bytes;  // limit of memory on the node, where control groups can enforce it
  std::optional<double> cpus;                      // limit of processors, likewise
  Rollout rollout;
  // Two incarnations of a replica never run at the same time: the old one ends before the new one starts, and a node
  // that has no contact with a server for `stop_after` stops it.
  bool single = false;
  Duration stop_after = std::chrono::seconds(20);
  Duration replace_after = std::chrono::seconds(30);  // after this long without a report from its node
  UnknownFields unknown = {};

  Runtime effective_runtime() const;
  Transport transport() const;
  std::uint32_t gpus_per_replica() const;  // 0 unless the transport is LocalGpu
  friend bool operator==(const DeploymentSpec&, const DeploymentSpec&) = default;
};

// Whether the specs differ at most in the number of replicas, so that running replicas need no change.
bool same_but_replicas(const DeploymentSpec& a, const DeploymentSpec& b);

// Checks one spec for contradictions, without a fleet. Examples: a GPU deployment with zero GPUs, and a
// model without a runtime if its name, `gpus` and `cpu` do not imply one. An unknown runtime is a
// contradiction only if it looks like a typo; otherwise it becomes a reason in the plan.
Result<void> validate(const DeploymentSpec& spec);

// The default for deployments with a readiness probe in a project file. JSON without `unready_within_s` means never,
// because a version without this field wrote it.
inline constexpr Duration unready_within_in_files = std::chrono::minutes(5);

// A larger number of replicas is refused as a mistake in the file.
inline constexpr std::uint32_t replicas_max = 10'000;

struct NodeDevice {
  DeviceInfo info;
  // Bytes in use by any process; absent: not measured.
  std::optional<std::uint64_t> memory_bytes_used = {};
  // From the ledger of its machine: bytes promised and not yet in use, the number of leases on the device, and whether
  // one of them is exclusive.
  std::uint64_t memory_bytes_promised = 0;
  std::uint32_t holders = 0;
  bool held_exclusively = false;
  // Use by others; see DeviceView.
  std::uint32_t other_processes = 0;
  bool used_by_others = false;
  bool answers = true;  // false: its driver was queried and did not answer
  Intent intent = Intent::in_service;
  Health health = Health::healthy;
  std::string intent_reason = {};  // the operator's own words; for display
  // True for accelerators; false for the processor and for its stand-ins.
  bool is_gpu() const { return !info.is_fallback && info.backend != "host"; }
  friend bool operator==(const NodeDevice&, const NodeDevice&) = default;
};

struct NodeView {
  NodeId id;
  std::map<std::string, std::string> labels;
  std::set<std::string> taints;  // keep out deployments that do not tolerate them
  bool egress = false;           // may call external providers
  std::optional<std::uint32_t> cpus;
  std::optional<std::uint64_t> memory_bytes;
  Intent intent = Intent::in_service;
  Health health = Health::healthy;
  std::vector<NodeDevice> devices;
  std::vector<Link> links;  // between devices, as far as known; a replica gets the GPUs with the best links
  std::string intent_reason = {};
  friend bool operator==(const NodeView&, const NodeView&) = default;
};

// Node ids and device ids are unique; if two are equal, a plan uses the first.
struct Fleet {
  std::vector<NodeView> nodes;
};

// The place of one replica, and what it was promised there.
struct Assignment {
  DeploymentId deployment;
  std::uint32_t replica = 0;
  NodeId node;
  std::vector<DeviceId> devices;   // sorted; empty for remote and CPU replicas
  std::uint64_t memory_bytes = 0;  // per device; of the node in CPU mode
  bool exclusive = false;          // no other replica on these devices
  friend bool operator==(const Assignment&, const Assignment&) = default;
};

enum class ReasonKind : std::uint8_t {
  no_gpu_nodes,       // no node of the fleet has a GPU
  no_egress_nodes,    // no node has egress to `provider`
  not_enough_gpus,    // no node has `gpus_requested` free GPUs; `best_node` has `gpus_best`
  not_enough_memory,  // CPU mode: no node has enough memory
  unknown_transport,  // a runtime of a newer version
  zero_gpus,          // a GPU deployment with gpus = 0
  invalid_spec,       // a contradiction, or a name that is taken
  no_nodes,           // the fleet is empty
  node_selector,      // no node has all required labels
  taint,              // every remaining node has a taint that is not tolerated
  not_in_service,     // every remaining node or GPU is cordoned, draining or unhealthy
  unfit_gpus,         // capability, label or size: no node has enough GPUs that could ever serve
  one_per_node,       // each node that fits already has a replica
  drain_blocked,      // it cannot leave a draining node or GPU, and stays there
  refused,            // each node that fits recently refused it; see PlanLimits
};
std::string_view to_string(ReasonKind kind) noexcept;

struct Reason {
  ReasonKind kind = ReasonKind::not_enough_gpus;
  std::string text;                  // one sentence
  std::optional<Provider> provider;  // no_egress_nodes
  std::uint32_t gpus_requested = 0;  // not_enough_gpus, unfit_gpus: per replica
  std::optional<NodeId> best_node;   // the node that comes closest
  std::uint32_t gpus_best = 0;
  friend bool operator==(const Reason&, const Reason&) = default;
};

struct Pending {
  DeploymentId deployment;
  std::vector<std::uint32_t> replicas;  // empty: the deployment as a whole
  Reason reason;
  friend bool operator==(const Pending&, const Pending&) = default;
};

// A change from `before` to `after`: with only `after` a start (+), with only `before` a stop (-), with both a change
// (~). Stops come first, so that starts can use what they free.
struct Action {
  std::optional<Assignment> before;
  std::optional<Assignment> after;
  char sign() const { return !before ? '+' : !after ? '-' : '~'; }
  const Assignment& subject() const { return after ? *after : *before; }
  friend bool operator==(const Action&, const Action&) = default;
};

struct Plan {
  std::vector<Assignment> assignments;  // by deployment, in replica order
  std::vector<Pending> pending;         // by deployment; empty: all fits
  std::vector<Action> actions;          // empty: nothing to do
  friend bool operator==(const Plan&, const Plan&) = default;
};

// Nodes that remote replicas of a provider and key should use if possible.
struct EgressRoute {
  Provider provider = Provider::http;
  KeyRef key;
  friend auto operator<=>(const EgressRoute&, const EgressRoute&) = default;
};
using EgressPreference = std::map<EgressRoute, std::vector<NodeId>>;

// What a controller has decided before it asks for a plan.
struct PlanLimits {
  // Replicas that stay as they are, whatever their specs say; they are part of the plan. An assignment without a
  // node is not placed this time.
  std::span<const Assignment> staying;
  // Devices and bytes that are in use outside of the plan: by replicas that are ending, and by other deployments.
  std::span<const Assignment> occupied;
  // Nodes that accept no new replicas of a deployment for now.
  std::set<std::pair<DeploymentId, NodeId>> avoided;
};

// Keeps every current assignment that is still valid, places missing replicas by priority, then size, then name, and
// drops the rest. Equal inputs give equal plans, regardless of the order of nodes, devices, specs and current
// assignments. A spec that is invalid, or that repeats an earlier name, is pending as a whole.
Plan plan(std::span<const DeploymentSpec> specs, const Fleet& fleet, std::span<const Assignment> current = {},
          const EgressPreference& preference = {}, const PlanLimits& limits = {});

// A line for each action ("+ chat/0  gpu-1  GPU-ea3b8f50"), then what is pending and why, then a count. Ids are
// shortened so that they differ from each other and from `others`. `restarts` are replicas ("chat/0") that keep their
// place, but change their command or settings; they are included in the count.
std::string plan_to_text(const Plan& plan, std::span<const DeviceId> others = {},
                         std::span<const std::string> restarts = {});

struct Cluster {
  std::string name;
  friend bool operator==(const Cluster&, const Cluster&) = default;
};

struct Project {
  Cluster cluster;
  std::vector<DeploymentSpec> deployments;
  EgressPreference egress_preference;
};

// Checks each deployment, that names are unique, and that fallbacks exist.
Result<void> validate(const Project& project);

// Both read the text of a TOML file. Errors name file, line and column; an unknown key is an error that names the
// nearest known one.
Result<Project> read_project(std::string_view text, std::string_view filename);
Result<Fleet> read_fleet(std::string_view text, std::string_view filename);

}  // namespace berth::deployment
