#include "cli/devices.hpp"

#include <boost/json.hpp>
#include <cstdio>

#include "berth/bytes.hpp"
#include "berth/clock.hpp"
#include "berth/device_view.hpp"
#include "berth/placement.hpp"
#include "cli/terminal.hpp"

namespace berth::cli {
namespace {

DeviceRow ask(Backend& backend, DeviceInfo info) {
  DeviceRow row{std::move(info), {}, {}};
  auto device = backend.open(row.info.id);
  if (!device) {
    row.error = std::move(device).error();
    return row;
  }
  row.info = (*device)->info();
  if (auto sample = (*device)->sample()) {
    row.load = *sample;
  } else {
    row.error = std::move(sample).error();
  }
  return row;
}

// A device that cannot be asked is under suspicion until somebody finds out why.
Health health_of(const DeviceRow& row) {
  if (!row.error) return Health::healthy;
  return row.error->code == ErrorCode::device_lost ? Health::lost : Health::suspect;
}

Maybe total_of(const DeviceRow& row) {
  return row.load && row.load->memory_bytes_total ? row.load->memory_bytes_total : row.info.memory_bytes_total;
}

boost::json::object to_json(const DeviceRow& row) {
  boost::json::object out;
  const DeviceInfo& info = row.info;
  out["id"] = info.id.text();
  out["backend"] = info.backend;
  out["name"] = info.name;
  out["ordinal"] = info.ordinal;
  out["health"] = to_string(health_of(row));
  if (const Maybe total = total_of(row)) out["memory_bytes_total"] = *total;
  if (info.capability) out["capability"] = to_string(*info.capability);
  if (info.compute_units) out["compute_units"] = *info.compute_units;
  if (info.pci_address) out["pci_address"] = *info.pci_address;
  if (info.numa_node) out["numa_node"] = *info.numa_node;
  out["concurrency"] = info.concurrency;
  out["is_fallback"] = info.is_fallback;
  out["memory_domain"] = info.memory_domain;
  out["fault_domain"] = info.fault_domain;
  out["features"] = boost::json::array(info.features.begin(), info.features.end());
  boost::json::object labels;
  for (const auto& [key, value] : info.labels) labels[key] = value;
  out["labels"] = labels;
  if (row.load) {
    if (row.load->memory_bytes_free) out["memory_bytes_free"] = *row.load->memory_bytes_free;
    if (row.load->utilisation) out["utilisation"] = *row.load->utilisation;
    if (row.load->queue_depth) out["queue_depth"] = *row.load->queue_depth;
    if (row.load->active_streams) out["active_streams"] = *row.load->active_streams;
  }
  if (row.error) out["error"] = row.error->to_text();
  return out;
}

std::string to_table(const std::vector<DeviceRow>& rows) {
  Table table({"ID", "BACKEND", "NAME", ">UNITS", "VERSION", "MEMORY IN USE", ">FREE", ">TOTAL", "HEALTH"});
  for (const DeviceRow& row : rows) {
    const Maybe total = total_of(row);
    const Maybe free = row.load ? Maybe(row.load->memory_bytes_free) : Maybe();
    const std::string used =
        total && free && *total > 0 ? bar(1.0 - static_cast<double>(*free) / static_cast<double>(*total), 12) : "-";
    table.add({row.info.id.text(), row.info.backend, row.info.name,
               row.info.compute_units ? std::to_string(*row.info.compute_units) : "-",
               row.info.capability ? to_string(*row.info.capability) : "-", used, free ? bytes_text(*free) : "-",
               total ? bytes_text(*total) : "-", std::string(to_string(health_of(row)))});
  }
  return table.to_text();
}

}  // namespace

Result<std::vector<DeviceRow>> look(const DevicesArguments& arguments) {
  std::vector<std::unique_ptr<Backend>> backends;
  if (arguments.backend) {
    auto backend = make_backend(*arguments.backend, arguments.backends);
    if (!backend) return std::move(backend).error();
    backends.push_back(*std::move(backend));
  } else {
    for (const BackendEntry& entry : backend_list()) backends.push_back(entry.make(arguments.backends));
  }
  Listing listing = list_devices(backends);
  for (Listing::Silent& silent : listing.silent) {
    // A file of simulated devices was named by the user: a mistake in it is theirs to know.
    if (arguments.backend || (silent.backend == "simulated" && !arguments.backends.simulated_file.empty()))
      return std::move(silent.error);
  }
  std::vector<DeviceRow> rows;
  for (DeviceInfo& info : listing.devices) {
    for (const auto& backend : backends) {
      if (backend->name() == info.backend) {
        rows.push_back(ask(*backend, std::move(info)));
        break;
      }
    }
  }
  return rows;
}

int run_devices(const DevicesArguments& arguments) {
  for (;;) {
    const auto rows = look(arguments);
    if (!rows) return complain(rows.error());
    if (arguments.json) {
      boost::json::array out;
      for (const DeviceRow& row : *rows) out.push_back(to_json(row));
      std::printf("%s\n", boost::json::serialize(out).c_str());
    } else {
      // Home and clear below: the table is redrawn in place.
      if (arguments.watch && stdout_is_terminal()) std::printf("\033[H\033[J");
      std::printf("%s", to_table(*rows).c_str());
      for (const DeviceRow& row : *rows) {
        if (row.error)
          std::fprintf(stderr, "berth: %s: %s\n", row.info.id.text().c_str(), row.error->to_text().c_str());
      }
      if (rows->empty())
        std::fprintf(stderr, "berth: %s has no device\n", arguments.backend.value_or("this machine").c_str());
    }
    if (std::fflush(stdout) != 0) return world_failed;
    if (!arguments.watch) return done;
    real_clock().sleep_for(std::chrono::seconds(1));
  }
}

}  // namespace berth::cli
