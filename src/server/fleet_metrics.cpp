#include "server/fleet_metrics.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <set>
#include <system_error>
#include <vector>

#include "server/device_view.hpp"
#include "server/history.hpp"
#include "server/metrics_writer.hpp"

namespace berth::server {

using fleet::ReportedDevice;

namespace {

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }
double seconds_of_ms(std::uint64_t ms) { return static_cast<double>(ms) / 1e3; }

std::string joined(const std::string& labels, std::string_view name, std::string_view value) {
  return labels + "," + metric_label(name, value);
}

// One GPU of a node that reports.
struct Gpu {
  std::string node, labels;
  const ReportedDevice* device = nullptr;
  Intent intent = Intent::in_service;  // the strictest of the intents for its node, on its machine and by the operator
  bool takes_work = false;
  std::optional<Duration> sample_age;
};

std::vector<Gpu> gpus_of(const Leader& leader) {
  std::vector<Gpu> gpus;
  for (const auto& [id, record] : leader.state().nodes) {
    const LastReport* const last = leader.last_report(id);
    if (!last || leader.health(id) == controller::NodeHealth::lost) continue;
    const std::string node = metric_label("node", id.text());
    for (const ReportedDevice& device : last->report.devices) {
      if (!device.is_accelerator()) continue;
      Gpu& gpu = gpus.emplace_back();
      gpu.node = node;
      gpu.labels = joined(node, "device", device.info.id.text());
      gpu.device = &device;
      gpu.intent = std::max(device.intent, record.intent);
      if (const fleet::DeviceIntent* const set = operators_intent(device, record))
        gpu.intent = std::max(gpu.intent, set->intent);
      gpu.takes_work = takes_work(device, record);
      if (device.sample_age_ms)
        gpu.sample_age = std::chrono::milliseconds(*device.sample_age_ms) + (leader.now() - last->at);
    }
  }
  return gpus;
}

class FleetMetrics {
 public:
  FleetMetrics(const Leader& leader, const FleetCounts& counts, const GatewayReports& gateways,
               const ServerFacts& server)
      : leader_(leader), counts_(counts), gateways_(gateways), server_(server) {}

  std::string text() {
    write_nodes();
    write_gpus();
    write_telemetry();
    write_deployments();
    write_replicas();
    write_jobs();
    write_server();
    return out_.take();
  }

 private:
  void write_nodes() {
    const auto& nodes = leader_.state().nodes;
    std::map<controller::NodeHealth, std::uint64_t> counts;
    for (const auto& [id, record] : nodes) ++counts[leader_.health(id)];
    out_.metric("berth_nodes", "gauge", "Nodes of the fleet, by health.");
    for (const auto health :
         {controller::NodeHealth::healthy, controller::NodeHealth::suspect, controller::NodeHealth::lost})
      out_.line(metric_label("health", to_string(health)), counts[health]);
    const auto of_nodes = [&](const char* name, const char* help, auto write) {
      out_.metric(name, "gauge", help);
      for (const auto& [id, record] : nodes) write(metric_label("node", id.text()), record);
    };
    of_nodes("berth_node_up", "1 while the node reports; 0 once it is lost.",
             [&](const std::string& labels, const fleet::NodeRecord& record) {
               out_.line(labels, leader_.health(record.id) == controller::NodeHealth::lost ? 0U : 1U);
             });
    of_nodes("berth_node_report_age_seconds", "Time since the last report of the node to this server.",
             [&](const std::string& labels, const fleet::NodeRecord& record) {
               if (const auto age = leader_.report_age(record.id)) out_.line(labels, seconds(*age));
             });
    of_nodes("berth_node_info", "1 for each node that has reported, with the version of its agent.",
             [&](const std::string& labels, const fleet::NodeRecord& record) {
               if (const LastReport* const last = leader_.last_report(record.id); last && !last->report.version.empty())
                 out_.line(joined(labels, "version", last->report.version), 1U);
             });
    of_nodes("berth_node_intent", "1 for each node, with the operator's intent for it.",
             [&](const std::string& labels, const fleet::NodeRecord& record) {
               out_.line(joined(labels, "intent", to_string(record.intent)), 1U);
             });
  }

  // Writes the values that are known without telemetry.
  void write_gpus() {
    out_.metric("berth_gpus", "gauge", "GPUs of the nodes that report, by use.");
    struct Uses {
      std::uint64_t free = 0, in_use = 0, unavailable = 0;
    };
    std::map<std::string, Uses> uses;
    for (const Gpu& gpu : gpus_) {
      Uses& node = uses[gpu.node];
      ++(!gpu.takes_work ? node.unavailable : !gpu.device->holders.empty() ? node.in_use : node.free);
    }
    for (const auto& [node, use] : uses) {
      out_.line(joined(node, "use", "free"), use.free);
      out_.line(joined(node, "use", "in_use"), use.in_use);
      out_.line(joined(node, "use", "unavailable"), use.unavailable);
    }
    of_gpus("berth_gpu_info", "1 for each GPU, with its name.",
            [&](const Gpu& gpu) { out_.line(joined(gpu.labels, "name", gpu.device->info.name), 1U); });
    of_gpus("berth_gpu_health", "1 for each GPU, with its health.",
            [&](const Gpu& gpu) { out_.line(joined(gpu.labels, "health", to_string(gpu.device->health)), 1U); });
    of_gpus("berth_gpu_intent", "1 for each GPU, with the intents of operators and its owner; the strictest applies.",
            [&](const Gpu& gpu) { out_.line(joined(gpu.labels, "intent", to_string(gpu.intent)), 1U); });
    of_gpus("berth_gpu_holders", "Replicas, jobs (other leases included) and foreign processes that use the GPU.",
            [&](const Gpu& gpu) {
              std::uint64_t replicas = 0, jobs = 0, foreign = 0;
              for (const fleet::ReportedHolder& holder : gpu.device->holders)
                ++(holder.kind == fleet::HolderKind::replica   ? replicas
                   : holder.kind == fleet::HolderKind::foreign ? foreign
                                                               : jobs);
              out_.line(joined(gpu.labels, "kind", "replica"), replicas);
              out_.line(joined(gpu.labels, "kind", "job"), jobs);
              out_.line(joined(gpu.labels, "kind", "foreign"), foreign);
            });
    of_gpus("berth_gpu_memory_bytes", "Size of the memory of the GPU.",
            [&](const Gpu& gpu) { out_.line(gpu.labels, gpu.device->info.memory_bytes_total); });
    of_gpus("berth_gpu_memory_promised_bytes", "Memory that leases of replicas and jobs have been promised.",
            [&](const Gpu& gpu) { out_.line(gpu.labels, gpu.device->memory_bytes_promised); });
  }

  void write_telemetry() {
    of_gpus("berth_gpu_sample_age_seconds", "Age of the telemetry of the GPU.", [&](const Gpu& gpu) {
      if (gpu.sample_age) out_.line(gpu.labels, seconds(*gpu.sample_age));
    });
    measured("berth_gpu_memory_free_bytes", "Free memory of the GPU.", &ReportedDevice::memory_bytes_free);
    measured("berth_gpu_memory_used_bytes", "Memory in use, by owner.", [&](const Gpu& gpu) {
      const ReportedDevice& device = *gpu.device;
      const auto used = [&](const char* owner, const std::optional<std::uint64_t>& bytes) {
        out_.line(joined(gpu.labels, "owner", owner), bytes);
      };
      // The agent itself is part of Berth.
      used("berth", device.memory_bytes_berth
                        ? std::optional(*device.memory_bytes_berth + device.memory_bytes_own.value_or(0))
                        : device.memory_bytes_own);
      used("foreign", device.memory_bytes_foreign);
      used("unattributed", device.memory_bytes_unattributed);
    });
    measured("berth_gpu_utilization_ratio", "Share of the time in which the GPU was busy, from 0 to 1.",
             &ReportedDevice::utilization);
    measured("berth_gpu_memory_utilization_ratio",
             "Share of the bandwidth of its memory that the GPU used, from 0 to 1.",
             &ReportedDevice::memory_utilization);
    measured("berth_gpu_temperature_celsius", "Temperature of the GPU.", &ReportedDevice::temperature_celsius);
    measured("berth_gpu_memory_temperature_celsius", "Temperature of the memory of the GPU.",
             &ReportedDevice::memory_temperature_celsius);
    measured("berth_gpu_power_watts", "Power that the GPU draws.", &ReportedDevice::power_watts);
    measured("berth_gpu_power_limit_watts", "Power that the GPU may draw.", &ReportedDevice::power_limit_watts);
    measured("berth_gpu_clock_hertz", "Clock of the GPU.", [&](const Gpu& gpu) {
      if (gpu.device->clock_mhz) out_.line(gpu.labels, *gpu.device->clock_mhz * 1e6);
    });
    measured("berth_gpu_throttled", "1 while something, such as its power limit, keeps the clock of the GPU low.",
             [&](const Gpu& gpu) {
               if (gpu.device->throttle_reasons) out_.line(gpu.labels, gpu.device->throttle_reasons->empty() ? 0U : 1U);
             });
    out_.metric("berth_gpu_ecc_errors_total", "counter", "Memory errors since the driver was loaded, by kind.");
    for (const Gpu& gpu : gpus_) {
      if (!is_measured(*gpu.device)) continue;
      out_.line(joined(gpu.labels, "kind", "corrected"), gpu.device->ecc_corrected);
      out_.line(joined(gpu.labels, "kind", "uncorrected"), gpu.device->ecc_uncorrected);
    }
    measured("berth_gpu_remapped_rows", "Rows of memory that were replaced by spare ones.",
             &ReportedDevice::remapped_rows);
  }

  void write_deployments() {
    const auto of_deployments = [&](const char* name, const char* help, auto write) {
      out_.metric(name, "gauge", help);
      for (const controller::DeploymentStatus& status : leader_.deployments())
        write(metric_label("deployment", status.deployment.text()), status);
    };
    using Status = controller::DeploymentStatus;
    const auto count = [&](const char* name, const char* help, std::uint32_t Status::* value) {
      of_deployments(name, help,
                     [&](const std::string& labels, const Status& status) { out_.line(labels, status.*value); });
    };
    count("berth_replicas_wanted", "Replicas that the deployment asks for.", &Status::replicas);
    count("berth_replicas_ready", "Replicas that are ready.", &Status::ready);
    count("berth_replicas_updated", "Replicas of the current revision.", &Status::updated);
    std::map<DeploymentId, std::uint64_t> pending;
    for (const Pending& waiting : leader_.pending())
      pending[waiting.deployment] += std::max<std::size_t>(1, waiting.replicas.size());
    of_deployments(
        "berth_replicas_pending", "Replicas that cannot be placed at present.",
        [&](const std::string& labels, const Status& status) { out_.line(labels, pending[status.deployment]); });
    of_deployments("berth_deployment_state", "1 for the state of the deployment, 0 for every other state.",
                   [&](const std::string& labels, const Status& status) {
                     using State = controller::DeploymentState;
                     for (const State state : {State::pending, State::updating, State::serving, State::degraded,
                                               State::failed, State::paused})
                       out_.line(joined(labels, "state", to_string(state)), state == status.state ? 1U : 0U);
                   });
    const auto& desired = leader_.state().desired.deployments;
    of_deployments("berth_deployment_revision", "Revision of the deployment; it increases with every rollout.",
                   [&](const std::string& labels, const Status& status) {
                     if (const auto found = desired.find(status.deployment); found != desired.end())
                       out_.line(labels, found->second.revision);
                   });
    of_deployments("berth_rollout_paused", "1 while the rollout of the deployment is paused.",
                   [&](const std::string& labels, const Status& status) {
                     if (const auto found = desired.find(status.deployment); found != desired.end())
                       out_.line(labels, found->second.paused ? 1U : 0U);
                   });
  }

  struct Incarnation {
    std::string replica, labels;  // `replica`: the labels without the incarnation
    const fleet::Assigned* assigned = nullptr;
    const fleet::ReplicaReport* report = nullptr;  // null: its node is lost or has not reported it
  };
  std::vector<Incarnation> incarnations() const {
    std::vector<Incarnation> all;
    for (const auto& [node, list] : leader_.state().assignments) {
      const LastReport* const last = leader_.last_report(node);
      std::map<fleet::ReplicaKey, const fleet::ReplicaReport*> reports;
      if (last && leader_.health(node) != controller::NodeHealth::lost)
        for (const fleet::ReplicaReport& report : last->report.replicas) reports.emplace(report.key, &report);
      for (const fleet::Assigned& assigned : list.assigned) {
        const auto report = reports.find(assigned.key());
        const std::string replica =
            joined(metric_label("deployment", assigned.place.deployment.text()), "replica",
                   assigned.place.deployment.text() + "/" + std::to_string(assigned.place.replica));
        all.push_back({replica, joined(replica, "incarnation", std::to_string(assigned.generation)), &assigned,
                       report == reports.end() ? nullptr : report->second});
      }
    }
    return all;
  }

  void write_replicas() {
    const std::vector<Incarnation> all = incarnations();
    const auto of_all = [&](const char* name, const char* help, auto write) {
      out_.metric(name, "gauge", help);
      for (const Incarnation& incarnation : all) write(incarnation);
    };
    of_all("berth_replica_info", "1 for each incarnation of a replica, with its node and its revision.",
           [&](const Incarnation& incarnation) {
             out_.line(joined(joined(incarnation.labels, "node", incarnation.assigned->place.node.text()), "revision",
                              std::to_string(incarnation.assigned->revision)),
                       1U);
           });
    of_all("berth_replica_devices", "GPUs that an incarnation of a replica has.", [&](const Incarnation& incarnation) {
      out_.line(incarnation.labels, incarnation.assigned->place.devices.size());
    });
    of_all("berth_replica_state", "1 for each incarnation of a replica, with the state that its node reports.",
           [&](const Incarnation& incarnation) {
             if (incarnation.report)
               out_.line(joined(incarnation.labels, "state", to_string(incarnation.report->state)), 1U);
           });
    of_all("berth_replica_start_time_seconds", "When the incarnation last started, by the clock of its node.",
           [&](const Incarnation& incarnation) {
             if (incarnation.report && incarnation.report->started_ms)
               out_.line(incarnation.labels, seconds_of_ms(*incarnation.report->started_ms));
           });
    of_all("berth_replica_memory_peak_bytes", "Peak GPU memory use of the incarnation.",
           [&](const Incarnation& incarnation) {
             if (incarnation.report) out_.line(incarnation.labels, incarnation.report->memory_bytes_peak);
           });
    out_.metric("berth_replica_restarts_total", "counter",
                "Restarts of a replica after it failed, since this server became leader.");
    std::set<fleet::ReplicaKey> written;
    for (const Incarnation& incarnation : all) {
      const Assignment& place = incarnation.assigned->place;
      if (written.insert({place.deployment, place.replica, 0}).second)
        out_.line(incarnation.replica, counts_.restarts(place.deployment, place.replica));
    }
  }

  void write_jobs() {
    struct Jobs {
      std::uint64_t running = 0, waiting = 0, devices_wanted = 0;
      double longest_wait_s = 0;
    };
    std::map<NodeId, Jobs> nodes;
    for (const auto& [id, record] : leader_.state().nodes) {
      const LastReport* const last = leader_.last_report(id);
      if (!last || leader_.health(id) == controller::NodeHealth::lost) continue;
      Jobs& jobs = nodes[id];
      for (const fleet::ReportedLease& lease : last->report.leases) {
        const bool is_waiting = lease.state == fleet::LeaseState::waiting;
        ++(is_waiting ? jobs.waiting : jobs.running);
        if (!is_waiting) continue;
        jobs.devices_wanted += lease.devices_wanted.value_or(0);
        jobs.longest_wait_s = std::max(jobs.longest_wait_s, lease.age_s);
      }
    }
    const auto of_nodes = [&](const char* name, const char* help, auto write) {
      out_.metric(name, "gauge", help);
      for (const auto& [id, jobs] : nodes) write(metric_label("node", id.text()), id, jobs);
    };
    of_nodes("berth_jobs",
             "Jobs and other leases that do not belong to replicas, by state: with devices, or waiting for them.",
             [&](const std::string& labels, const NodeId&, const Jobs& jobs) {
               out_.line(joined(labels, "state", "running"), jobs.running);
               out_.line(joined(labels, "state", "waiting"), jobs.waiting);
             });
    of_nodes(
        "berth_queue_devices_wanted", "Devices that the waiting jobs of a node ask for.",
        [&](const std::string& labels, const NodeId&, const Jobs& jobs) { out_.line(labels, jobs.devices_wanted); });
    of_nodes("berth_queue_longest_wait_seconds", "How long the job that has waited longest has been waiting.",
             [&](const std::string& labels, const NodeId&, const Jobs& jobs) {
               if (jobs.waiting > 0) out_.line(labels, jobs.longest_wait_s);
             });
    of_nodes("berth_queue_front_seconds", "How long the first job in the queue of a node has been first.",
             [&](const std::string& labels, const NodeId& id, const Jobs&) {
               if (const auto time = counts_.front_time(id, leader_.now())) out_.line(labels, seconds(*time));
             });
  }

  void write_server() {
    const auto value = [&](const char* name, const char* help, auto of) {
      out_.metric(name, "gauge", help);
      out_.line("", of);
    };
    out_.metric("berth_server_info", "gauge", "1, with the version of the server.");
    out_.line(metric_label("version", server_.version), 1U);
    value("berth_server_start_time_seconds", "When the server started.", seconds_of_ms(server_.started_ms));
    value("berth_server_epoch", "Number of this leadership; it increases whenever a server becomes leader.",
          leader_.epoch());
    value("berth_server_connections", "Open connections.", server_.connections);
    value("berth_server_connections_limit", "Maximum number of connections to the server.", server_.connections_max);
    value("berth_server_warnings", "Warnings that berth status shows.", leader_.warnings().size());
    value("berth_controller_stuck", "1 while the controller cannot decide; berth status shows why.",
          leader_.problem().empty() ? 0U : 1U);
    const StoreCounts& store = leader_.store_counts();
    out_.metric("berth_store_commit_seconds", "summary", "Time that commits to the store have taken.");
    out_.part("_sum", "", metric_number(seconds(store.commit_time)));
    out_.part("_count", "", std::to_string(store.commits));
    out_.metric("berth_store_errors_total", "counter", "Commits, renewals and reads of the store that failed.");
    out_.line("", store.errors);
    const auto space = [&](const char* name, const char* help, std::uint64_t StoreSpace::* bytes) {
      out_.metric(name, "gauge", help);
      if (server_.store) out_.line("", (*server_.store).*bytes);
    };
    space("berth_store_size_bytes", "Size of the files of the store.", &StoreSpace::bytes);
    space("berth_store_free_bytes", "Free space on the file system of the store.", &StoreSpace::bytes_free);
    out_.metric("berth_gateway_up", "gauge", "1 while the gateway reports to the server, 0 while it does not.");
    const auto current = gateways_.current(leader_.now());
    for (const auto& [id, credential] : leader_.state().credentials)
      if (credential.role == fleet::Role::gateway && credential.name)
        out_.line(metric_label("gateway", *credential.name), current.contains(*credential.name) ? 1U : 0U);
  }

  void of_gpus(const char* name, const char* help, const std::function<void(const Gpu&)>& write) {
    out_.metric(name, "gauge", help);
    for (const Gpu& gpu : gpus_) write(gpu);
  }
  void measured(const char* name, const char* help, const std::function<void(const Gpu&)>& write) {
    of_gpus(name, help, [&](const Gpu& gpu) {
      if (is_measured(*gpu.device)) write(gpu);
    });
  }
  template <class Value>
  void measured(const char* name, const char* help, std::optional<Value> ReportedDevice::* value) {
    measured(name, help, [&](const Gpu& gpu) { out_.line(gpu.labels, gpu.device->*value); });
  }

  const Leader& leader_;
  const FleetCounts& counts_;
  const GatewayReports& gateways_;
  const ServerFacts& server_;
  const std::vector<Gpu> gpus_ = gpus_of(leader_);
  MetricsWriter out_;
};

}  // namespace

std::optional<StoreSpace> store_space(const std::string& store) {
  constexpr std::string_view scheme = "sqlite:";
  if (!store.starts_with(scheme)) return std::nullopt;
  const std::string path = store.substr(scheme.size());
  StoreSpace space;
  std::error_code failed;
  space.bytes = std::filesystem::file_size(path, failed);
  if (failed) return std::nullopt;
  if (const auto log_bytes = std::filesystem::file_size(path + "-wal", failed); !failed) space.bytes += log_bytes;
  const auto disk = std::filesystem::space(path, failed);
  if (failed) return std::nullopt;
  space.bytes_free = disk.available;
  return space;
}

std::string fleet_metrics_text(const Leader& leader, const FleetCounts& counts, const GatewayReports& gateways,
                               const ServerFacts& server) {
  return FleetMetrics(leader, counts, gateways, server).text();
}

}  // namespace berth::server
