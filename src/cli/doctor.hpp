// `berth doctor`: what keeps this machine's devices from being used well, and
// the command that fixes it. Facts are gathered first (doctor_facts.cpp); every
// check is a pure function of them, so that each finding can be tested on any
// machine. A check that has nothing to look at says nothing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "berth/device.hpp"
#include "cli/terminal.hpp"
#include "machine/scope.hpp"
#include "machine/telemetry_poller.hpp"

namespace berth::cli {

enum class Severity : std::uint8_t {
  ok,       // as it should be
  note,     // good to know
  warning,  // works, but not as well as it could
  error,    // something does not work
};
std::string_view to_string(Severity severity) noexcept;

struct Finding {
  Severity severity = Severity::ok;
  std::string_view check;
  std::string message;  // one sentence: what is so
  std::string why;      // one sentence: what follows from it; may be empty
  std::string fix;      // the command that fixes it; may be empty
};

// What NVIDIA's management library says of one GPU beyond its telemetry. In the
// library's order, which is that of nvidia-smi.
struct GpuFacts {
  std::string uuid;
  std::optional<bool> persistent;
  enum class ComputeMode : std::uint8_t { shared, exclusive, prohibited };
  std::optional<ComputeMode> compute_mode;
  std::optional<bool> sliced;  // in MIG mode
};

struct FileFacts {
  std::string path;
  std::string group;  // that owns it
  bool may_open = true;
};

// A file that names a vendor's OpenCL library.
struct VendorFacts {
  std::string path;
  std::string library;
  std::string failure;  // why the library cannot be loaded; empty: it can
};

// A file of a ledger; every user has one of his own.
struct LedgerFileFacts {
  std::string path;
  std::uint32_t owner = 0;  // as the file system says
  std::size_t entries = 0;
  std::string problem;  // why it cannot be read, or what is wrong with it; empty: nothing
};

// A folder that a ledger may be in.
struct LedgerFolderFacts {
  std::string path;
  bool usable = false;
  std::string reason;             // why it is not usable; may be empty
  bool in_use = false;            // this process writes its promises there
  bool for_all = false;           // of root, and open to every user
  bool shared_with_host = false;  // in a container: it is a folder of the machine
  std::vector<LedgerFileFacts> files;
};

struct Facts {
  // What is in the machine.
  std::vector<std::string> nvidia_pci;  // addresses of NVIDIA's display and compute devices
  std::optional<std::string> kernel_driver_version;
  std::optional<std::string> library_driver_version;
  std::optional<Error> nvml_error;  // absent: the library works
  std::vector<GpuFacts> gpus;
  std::vector<FileFacts> nvidia_files;  // /dev/nvidia*
  std::vector<FileFacts> render_files;  // /dev/dri/render*
  std::vector<VendorFacts> opencl_vendors;
  std::optional<std::string> mps_pipe;  // see mps_control_socket()

  // What the back ends say, each by itself, and the devices of all together.
  std::vector<BackendAnswer> answers;
  std::vector<DeviceRow> rows;

  // How this process may use the machine.
  std::map<std::string, std::string, std::less<>> environment;  // the variables that checks look at
  unsigned cores_machine = 0, cores_allowed = 0;
  std::optional<std::uint64_t> memory_machine, memory_allowed;
  std::optional<std::uint64_t> locked_bytes_most;  // absent: no limit
  bool own_pid_namespace = false;
  bool in_container = false;
  std::optional<Error> ledger_error;              // absent: the ledger can be read and written
  std::vector<LedgerFolderFacts> ledger_folders;  // those that are there, the most preferred first
  ScopeUse scope = ScopeUse::no_systemd;

  const std::string* variable(std::string_view name) const;
  const BackendAnswer* answer(std::string_view backend) const;
};

struct Check {
  std::string_view name;
  std::vector<Finding> (*look)(const Facts&);  // leaves `check` to the caller
};
std::span<const Check> checks();

// Of all checks, worst first, else in the order of checks().
std::vector<Finding> examine(const Facts& facts);

// Aligned, wrapped to the line; ends with how many of which.
std::string findings_text(std::span<const Finding> findings, const Style& style);
std::string findings_json(std::span<const Finding> findings);

// Asks the machine; drivers have deadlines.
Facts gather_facts(const BackendOptions& backends);

int run_doctor(const BackendOptions& backends, bool json);

}  // namespace berth::cli
