// `berth doctor`: problems of this machine's devices, and the command that fixes each.
// Facts are gathered first (facts.cpp); every check is a pure function of them, so that
// each finding can be tested on any machine.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "berth/device.hpp"
#include "cli/text/terminal.hpp"
#include "machine/scope.hpp"
#include "machine/telemetry_poller.hpp"

namespace berth::cli {

enum class Severity : std::uint8_t {
  ok,       // as it should be
  note,     // good to know
  warning,  // works, but not optimally
  error,    // something does not work
};
std::string_view to_string(Severity severity) noexcept;

struct Finding {
  Severity severity = Severity::ok;
  std::string_view check;
  std::string message;  // one sentence: the finding
  std::string why;      // one sentence: the consequence; may be empty
  std::string fix;      // the command that fixes it; may be empty
};

// What NVML reports of one GPU beyond its telemetry. In the order of NVML and
// nvidia-smi.
struct GpuFacts {
  std::string uuid;
  std::optional<bool> persistent;
  enum class ComputeMode : std::uint8_t { shared, exclusive, prohibited };
  std::optional<ComputeMode> compute_mode;
  std::optional<bool> sliced;  // in MIG mode
};

struct FileFacts {
  std::string path;
  std::string group;  // the group that owns it
  bool may_open = true;
};

// A file that names a vendor's OpenCL library.
struct VendorFacts {
  std::string path;
  std::string library;
  std::string failure;  // why the library cannot be loaded; empty: it can
};

// A file of a ledger; every user has one.
struct LedgerFileFacts {
  std::string path;
  std::uint32_t owner = 0;  // from the file system
  std::size_t entries = 0;
  std::string problem;  // why it cannot be read, or what is wrong with it; empty: it is fine
};

// A folder that a ledger may be in.
struct LedgerFolderFacts {
  std::string path;
  bool usable = false;
  std::string reason;             // why it is not usable; may be empty
  bool in_use = false;            // this process writes its promises there
  bool for_all = false;           // belongs to root, and every user can write to it
  bool shared_with_host = false;  // in a container: mounted from the host
  std::vector<LedgerFileFacts> files;
};

struct Facts {
  // Hardware and drivers.
  std::vector<std::string> nvidia_pci;  // addresses of NVIDIA's display and compute devices
  std::optional<std::string> kernel_driver_version;
  std::optional<std::string> library_driver_version;
  std::optional<Error> nvml_error;  // absent: the library works
  std::vector<GpuFacts> gpus;
  std::vector<FileFacts> nvidia_files;  // /dev/nvidia*
  std::vector<FileFacts> render_files;  // /dev/dri/render*
  std::vector<VendorFacts> opencl_vendors;
  std::optional<std::string> mps_pipe;  // see mps_control_socket()

  // The answer of each back end, and the devices of all of them.
  std::vector<BackendAnswer> answers;
  std::vector<inventory::DeviceRow> rows;

  // Limits and surroundings of this process.
  std::map<std::string, std::string, std::less<>> environment;  // the variables that checks read
  unsigned cores_machine = 0, cores_allowed = 0;
  std::optional<std::uint64_t> memory_machine, memory_allowed;
  std::optional<std::uint64_t> locked_bytes_most;  // absent: no limit
  bool own_pid_namespace = false;
  bool in_container = false;
  std::optional<Error> ledger_error;              // absent: it can be read and written
  std::vector<LedgerFolderFacts> ledger_folders;  // those that exist, the most preferred first
  std::optional<Error> limits_error;              // why the file with limits per user is ignored
  std::vector<std::string> limits_in_use;         // one sentence for each limit that applies to this user
  machine::ScopeUse scope = machine::ScopeUse::no_systemd;
  // Agents of this user without a server that they may follow: the node, since when, and why.
  struct AgentWithoutServer {
    std::string node, since, reason;
  };
  std::vector<AgentWithoutServer> agents_without_server;

  const std::string* variable(std::string_view name) const;
  const BackendAnswer* answer(std::string_view backend) const;
};

struct Check {
  std::string_view name;
  std::vector<Finding> (*look)(const Facts&);  // the caller sets `check`
};
std::span<const Check> checks();

// The findings of all checks, worst first, then in the order of checks().
std::vector<Finding> examine(const Facts& facts);

// Aligned and wrapped; the last line contains the counts.
std::string findings_text(std::span<const Finding> findings, const Style& style);
std::string findings_json(std::span<const Finding> findings);

// Reads the machine; calls into drivers have deadlines.
Facts gather_facts(const BackendOptions& backends);

}  // namespace berth::cli
