// Every finding of the doctor, on constructed facts.
#include "cli/doctor/doctor.hpp"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "world/files.hpp"
#include "world/test_units.hpp"

namespace berth::cli {

using namespace inventory;
using namespace machine;
using namespace world;
namespace {

using world::gib;

std::string uuid(int i) { return "GPU-0000000" + std::to_string(i) + "-1111-2222-3333-444455556666"; }

DeviceInfo gpu_info(int i) {
  DeviceInfo info;
  info.id = DeviceId(uuid(i));
  info.backend = "cuda";
  info.ordinal = i;
  info.pci_address = "0000:0" + std::to_string(i) + ":00.0";
  info.memory_domain = info.fault_domain = uuid(i);
  return info;
}

// Two GPUs and the host, without problems.
Facts well() {
  Facts facts;
  facts.nvidia_pci = {"0000:00:00.0", "0000:01:00.0"};
  facts.kernel_driver_version = facts.library_driver_version = "580.159.04";
  for (int i = 0; i < 2; ++i) {
    facts.gpus.push_back({uuid(i), true, GpuFacts::ComputeMode::shared, false});
    DeviceRow row{gpu_info(i), Telemetry{}, {}};
    row.seen->processes.emplace();
    row.seen->throttle_reasons.emplace();
    row.seen->recovery_action = RecoveryAction::none;
    row.seen->ecc_uncorrected = 0;
    row.seen->remapped_rows = 0;
    facts.rows.push_back(std::move(row));
  }
  facts.nvidia_files = {{"/dev/nvidia0", "video", true}, {"/dev/nvidiactl", "video", true}};
  facts.render_files = {{"/dev/dri/renderD128", "render", true}};
  facts.opencl_vendors = {{"/etc/OpenCL/vendors/pocl.icd", "libpocl.so.2", ""}};
  facts.answers.push_back({"cuda", std::vector{gpu_info(0), gpu_info(1)}});
  DeviceInfo pocl;
  pocl.id = DeviceId("cpu-opencl-0");
  pocl.backend = "opencl";
  facts.answers.push_back({"opencl", std::vector{pocl}});
  facts.answers.push_back({"simulated", Error{ErrorCode::not_initialized, "no file"}});
  facts.cores_machine = facts.cores_allowed = 16;
  facts.memory_machine = facts.memory_allowed = 64 * gib;
  facts.ledger_folders = {
      {"/run/berth", true, {}, true, true, false, {{"/run/berth/a", 0, 1, {}}, {"/run/berth/b", 1, 2, {}}}}};
  return facts;
}

// A machine without accelerators.
Facts bare() {
  Facts facts;
  facts.nvml_error = Error{ErrorCode::not_initialized, "no management library", "install it"};
  facts.answers.push_back({"cuda", Error{ErrorCode::not_initialized, "no libcuda", "install it"}});
  facts.answers.push_back({"opencl", Error{ErrorCode::not_initialized, "no OpenCL", "install it"}});
  return facts;
}

struct Case {
  std::string_view check;
  Severity severity;
  std::string words;  // in message, reason or fix
  std::function<void(Facts&)> ail;
};

Error refused(std::string message) { return {ErrorCode::invalid_argument, std::move(message), "fix it"}; }

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"nvidia_driver", Severity::error, "580.95", [](Facts& f) { f.kernel_driver_version = "580.95"; }},
      {"nvidia_driver", Severity::error, "sudo reboot",
       [](Facts& f) {
         f.library_driver_version.reset();
         f.nvml_error = Error{ErrorCode::not_initialized,
                              "libraries and kernel driver differ",
                              {},
                              {},
                              DriverError{18, "NVML_ERROR_LIB_RM_VERSION_MISMATCH"}};
       }},
      {"nvidia_driver", Severity::error, "modprobe nvidia",
       [](Facts& f) {
         f = bare();
         f.nvidia_pci = {"0000:01:00.0"};
       }},
      {"device_files", Severity::error, "usermod -aG video", [](Facts& f) { f.nvidia_files[0].may_open = false; }},
      {"device_files", Severity::warning, "usermod -aG render", [](Facts& f) { f.render_files[0].may_open = false; }},
      {"device_files", Severity::error, "chmod a+rw /dev/nvidia0",
       [](Facts& f) { f.nvidia_files[0] = {"/dev/nvidia0", "root", false}; }},
      {"cuda_library", Severity::error, "too old",
       [](Facts& f) {
         f.answers[0].devices = Error{ErrorCode::not_initialized, "the driver is too old", "update it"};
       }},
      {"ledger", Severity::note, "/run/berth is not used for the ledger: it belongs to user 1000",
       [](Facts& f) {
         f.ledger_folders.push_back({"/run/berth", false, "it belongs to user 1000", false, false, false, {}});
       }},
      {"ledger_seen", Severity::warning, "in a container", [](Facts& f) { f.in_container = true; }},
      {"ledger_seen", Severity::warning, "d /run/berth 1777 root root -",
       [](Facts& f) { f.ledger_folders[0].for_all = false; }},
      {"ledger_seen", Severity::note, "unset BERTH_RUNTIME_DIR",
       [](Facts& f) {
         f.ledger_folders[0].for_all = false;
         f.environment["BERTH_RUNTIME_DIR"] = f.ledger_folders[0].path;
       }},
      {"ledger_files", Severity::warning, "sudo rm /run/berth/user-1000",
       [](Facts& f) { f.ledger_folders[0].files.push_back({"/run/berth/user-1000", 1000, 0, "it was cut short"}); }},
      {"ledger_scope", Severity::note, "loginctl enable-linger", [](Facts& f) { f.scope = ScopeUse::not_lingering; }},
      {"ledger_scope", Severity::note, "login session", [](Facts& f) { f.scope = ScopeUse::outside_session; }},
      {"hidden_hardware", Severity::warning, "has 3 NVIDIA GPUs, but CUDA shows 2",
       [](Facts& f) { f.nvidia_pci.push_back("0000:02:00.0"); }},
      {"hidden_hardware", Severity::error, "has 2 NVIDIA GPUs, but CUDA shows 0",
       [](Facts& f) { f.answers[0].devices = std::vector<DeviceInfo>{}; }},
      {"visible_devices", Severity::error, "unset CUDA_VISIBLE_DEVICES",
       [](Facts& f) {
         f.environment["CUDA_VISIBLE_DEVICES"] = "0,,1";
         f.answers[0].devices = refused("CUDA_VISIBLE_DEVICES='0,,1' has an empty item");
       }},
      {"visible_devices", Severity::note, "hides 1 of 2 GPUs",
       [](Facts& f) {
         f.environment["CUDA_VISIBLE_DEVICES"] = uuid(0);
         f.answers[0].devices = std::vector{gpu_info(0)};
       }},
      {"visible_devices", Severity::warning, "CUDA_VISIBLE_DEVICES=" + uuid(1) + "," + uuid(0),
       [](Facts& f) {
         f.environment["CUDA_VISIBLE_DEVICES"] = "1,0";
         f.answers[0].devices = std::vector{gpu_info(1), gpu_info(0)};
       }},
      {"partitions", Severity::error, "has 132", [](Facts& f) { f.answers[0].devices = refused("it has 132"); }},
      {"device_order", Severity::warning, "CUDA_DEVICE_ORDER=PCI_BUS_ID",
       [](Facts& f) { std::swap(f.gpus[0], f.gpus[1]); }},
      {"management_library", Severity::warning, "temperature",
       [](Facts& f) {
         f.gpus.clear();
         f.nvml_error = Error{ErrorCode::not_initialized, "no management library", "install it"};
       }},
      {"opencl_library", Severity::note, "ocl-icd-libopencl1",
       [](Facts& f) { f.answers[1].devices = Error{ErrorCode::not_initialized, "no loader"}; }},
      {"opencl_library", Severity::note, "pocl-opencl-icd",
       [](Facts& f) { f.answers[1].devices = std::vector<DeviceInfo>{}; }},
      {"opencl_library", Severity::error, "does not answer",
       [](Facts& f) { f.answers[1].devices = Error{ErrorCode::timeout, "does not answer", "look"}; }},
      {"opencl_vendors", Severity::warning, "libpocl.so.2, which cannot be loaded: no such file",
       [](Facts& f) { f.opencl_vendors[0].failure = "no such file"; }},
      {"pocl_devices", Severity::error, "unset POCL_DEVICES",
       [](Facts& f) {
         f.environment["POCL_DEVICES"] = "basci";
         f.answers[1].devices = refused("POCL_DEVICES='basci' is not known");
       }},
      {"back_ends", Severity::error, "typo.toml:3:1",
       [](Facts& f) { f.answers[2].devices = refused("typo.toml:3:1: unknown key"); }},
      {"silent_devices", Severity::error, "cuda:1 (GPU-00000001) cannot be read: no answer",
       [](Facts& f) { f.rows[1].error = Error{ErrorCode::timeout, "no answer", "look at dmesg"}; }},
      {"driver_reports", Severity::error, "--gpu-reset -i " + uuid(0),
       [](Facts& f) { f.rows[0].seen->recovery_action = RecoveryAction::reset; }},
      {"driver_reports", Severity::warning, "2 uncorrectable memory errors",
       [](Facts& f) { f.rows[0].seen->ecc_uncorrected = 2; }},
      {"driver_reports", Severity::note, "replaced 1 failed memory row", [](Facts& f) { f.rows[0].seen->remapped_rows = 1; }},
      {"driver_reports", Severity::error, "Xid 79",
       [](Facts& f) { f.rows[0].seen->load.events = {{DeviceEvent::Kind::xid, 79, {}}}; }},
      {"driver_reports", Severity::warning, "Xid 31",
       [](Facts& f) { f.rows[0].seen->load.events = {{DeviceEvent::Kind::xid, 31, {}}}; }},
      {"throttling", Severity::warning, "power cap, hot",
       [](Facts& f) { f.rows[0].seen->throttle_reasons = {"power cap", "hot"}; }},
      {"compute_mode", Severity::note, "-c DEFAULT -i " + uuid(1),
       [](Facts& f) { f.gpus[1].compute_mode = GpuFacts::ComputeMode::exclusive; }},
      {"compute_mode", Severity::error, "PROHIBITED",
       [](Facts& f) { f.gpus[1].compute_mode = GpuFacts::ComputeMode::prohibited; }},
      {"slices", Severity::warning, "has no slice", [](Facts& f) { f.gpus[0].sliced = true; }},
      {"slices", Severity::note, "with 1 slice",
       [](Facts& f) {
         f.gpus[0].sliced = true;
         f.rows[0].info.parent = DeviceId(uuid(0));
       }},
      {"ledger", Severity::error, "rm /run/berth/ledger",
       [](Facts& f) {
         f.ledger_error =
             Error{ErrorCode::invalid_argument, "/run/berth/ledger is not a ledger", "rm /run/berth/ledger"};
       }},
      {"mps", Severity::note, "nvidia-cuda-mps-control", [](Facts& f) { f.mps_pipe = "/tmp/nvidia-mps/control"; }},
      {"user_limits", Severity::error, "every user can take all of the free memory",
       [](Facts& f) { f.limits_error = Error{ErrorCode::invalid_argument, "gpus is 0", "correct it"}; }},
      {"agent_server", Severity::error, "the agent of node a has no server that it may follow: it is down",
       [](Facts& f) { f.agents_without_server = {{"a", "2026-11-17 12:00:00", "it is down"}}; }},
      {"foreign_processes", Severity::note, "process 4711 (python3) holds 30.0 GiB of cuda:0 (GPU-00000000)",
       [](Facts& f) {
         f.rows[0].seen->processes = {{4711, ProcessKind::foreign, "python3", 30 * gib},
                                      {4712, ProcessKind::own, "berth", 1 * gib}};
       }},
      {"hidden_processes", Severity::note, "--pid=host",
       [](Facts& f) {
         f.own_pid_namespace = true;
         f.rows[1].seen->memory_use.unattributed = 30 * gib;
       }},
      {"persistence", Severity::note, "nvidia-smi -pm 1", [](Facts& f) { f.gpus[0].persistent = false; }},
      {"seen_twice", Severity::note, "listed once",
       [](Facts& f) { f.answers[1].devices->at(0).pci_address = "0000:01:00.0"; }},
      {"processor_limit", Severity::note, "4 of 16 cores", [](Facts& f) { f.cores_allowed = 4; }},
      {"memory_limit", Severity::note, "8.0 GiB of the machine's 64.0 GiB",
       [](Facts& f) { f.memory_allowed = 8 * gib; }},
      {"locked_memory", Severity::note, "ulimit -l", [](Facts& f) { f.locked_bytes_most = 8 << 20; }},
  };
  return all;
}

bool mentions(const Finding& finding, const std::string& words) {
  return (finding.message + "\n" + finding.why + "\n" + finding.fix).find(words) != std::string::npos;
}

TEST(Doctor, AHealthyMachineHasNoProblems) {
  for (const Finding& finding : examine(well())) EXPECT_EQ(finding.severity, Severity::ok) << finding.message;
  EXPECT_FALSE(examine(well()).empty()) << "the doctor also reports what is in order";
}

TEST(Doctor, AMachineWithoutAcceleratorsHasNoErrors) {
  for (const Finding& finding : examine(bare())) EXPECT_LE(finding.severity, Severity::note) << finding.message;
}

TEST(Doctor, EveryProblemIsFoundByItsCheckWithReasonAndFix) {
  for (const Case& ailment : cases()) {
    Facts facts = well();
    ailment.ail(facts);
    bool found = false;
    for (const Finding& finding : examine(facts)) {
      if (finding.check != ailment.check || !mentions(finding, ailment.words)) continue;
      found = true;
      EXPECT_EQ(finding.severity, ailment.severity) << finding.message;
      EXPECT_NE(finding.message, "");
      EXPECT_TRUE(ailment.severity < Severity::warning || !finding.fix.empty()) << finding.message;
    }
    EXPECT_TRUE(found) << ailment.check << ": " << ailment.words;
  }
}

TEST(Doctor, EveryCheckIsTested) {
  std::set<std::string_view> tried;
  for (const Case& ailment : cases()) tried.insert(ailment.check);
  for (const Check& check : checks()) EXPECT_TRUE(tried.contains(check.name)) << check.name;
  EXPECT_EQ(tried.size(), checks().size());
}

TEST(Doctor, EveryCheckIsDocumented) {
  const std::string page = read_text(std::string(BERTH_SOURCE_FOLDER) + "/docs/reference/devices.md").value();
  for (const Check& check : checks())
    EXPECT_NE(page.find("`" + std::string(check.name) + "`"), std::string::npos) << check.name;
}

TEST(Doctor, AProblemIsAnErrorOfOneCheckOnly) {
  for (const Case& ailment : cases()) {
    Facts facts = well();
    ailment.ail(facts);
    for (const Finding& finding : examine(facts)) {
      EXPECT_TRUE(finding.severity != Severity::error || ailment.severity == Severity::error)
          << ailment.check << " made " << finding.check << " say " << finding.message;
    }
  }
}

TEST(Doctor, NamesTheLedgerInUseAndItsEntries) {
  Facts facts = well();
  const auto message = [&] {
    for (const Finding& finding : examine(facts)) {
      if (finding.check == "ledger") return finding.message;
    }
    return std::string();
  };
  EXPECT_EQ(message(), "the ledger is in /run/berth, with 3 entries");
  facts.ledger_folders[0].files.clear();
  facts.environment["BERTH_RUNTIME_DIR"] = "/run/berth";
  EXPECT_EQ(message(), "the ledger is in /run/berth (BERTH_RUNTIME_DIR), with no entry");
  facts.in_container = facts.ledger_folders[0].shared_with_host = true;
  for (const Finding& finding : examine(facts))
    EXPECT_NE(finding.check, "ledger_seen") << "the folder is shared with the host";
}

TEST(Doctor, TheFixForTheSharedFolderIsTheInstalledLine) {
  std::ifstream file(std::string(BERTH_SOURCE_FOLDER) + "/src/cli/berth.conf");
  std::string line;
  while (std::getline(file, line) && line.starts_with('#')) {
  }
  ASSERT_FALSE(line.empty());
  Facts facts = well();
  facts.ledger_folders[0].for_all = false;
  std::string fix;
  for (const Finding& finding : examine(facts)) {
    if (finding.check == "ledger_seen") fix = finding.fix;
  }
  EXPECT_NE(fix.find("'" + line + "'"), std::string::npos) << fix;
}

TEST(Doctor, ControlCharactersInProcessNamesAreEscaped) {
  Facts facts = well();
  facts.ledger_folders[0].files[0].problem = "bad \033[2J";
  EXPECT_EQ(findings_text(examine(facts), {}).find('\033'), std::string::npos);
}

TEST(Doctor, TheMostSevereFindingIsFirst) {
  Facts facts = well();
  facts.gpus[0].persistent = false;
  facts.rows[1].error = Error{ErrorCode::timeout, "no answer"};
  facts.rows[0].seen->throttle_reasons = {"power cap"};
  const auto findings = examine(facts);
  EXPECT_TRUE(std::is_sorted(findings.begin(), findings.end(),
                             [](const Finding& a, const Finding& b) { return a.severity > b.severity; }));
  EXPECT_EQ(findings.front().check, "silent_devices");
}

TEST(Doctor, AProcessIsOneFindingHoweverManyGpusItUses) {
  Facts facts = well();
  for (DeviceRow& row : facts.rows) row.seen->processes = {{4711, ProcessKind::foreign, "python3", gib}};
  std::size_t count = 0;
  for (const Finding& finding : examine(facts)) {
    if (finding.check != "foreign_processes") continue;
    ++count;
    EXPECT_EQ(finding.message,
              "process 4711 (python3) holds 1.0 GiB of cuda:0 (GPU-00000000) and 1.0 GiB of cuda:1 (GPU-00000001)");
  }
  EXPECT_EQ(count, 1u);
}

TEST(Doctor, ForeignMemoryOfPartsIsReportedOnce) {
  Facts facts = well();
  facts.rows[1].info.memory_domain = facts.rows[0].info.memory_domain;
  for (DeviceRow& row : facts.rows) row.seen->processes = {{4711, ProcessKind::foreign, {}, gib}};
  std::vector<std::string> messages;
  for (const Finding& finding : examine(facts)) {
    if (finding.check == "foreign_processes") messages.push_back(finding.message);
  }
  EXPECT_EQ(messages, std::vector<std::string>{"process 4711 holds 1.0 GiB of cuda:0 (GPU-00000000)"});
}

TEST(Doctor, TextIsAlignedWrappedAndCounted) {
  Facts facts = well();
  facts.mps_pipe = "/tmp/nvidia-mps/control";
  facts.locked_bytes_most = 8 << 20;
  facts.gpus[0].persistent = false;
  facts.rows[1].error = Error{ErrorCode::timeout, "no answer"};
  const std::string text = findings_text(examine(facts), {80, false, false});
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(line.size() <= 80 || line.find("> ") != std::string::npos) << line;
    EXPECT_EQ(line.find_last_not_of(' ') + 1, line.size()) << "trailing blanks: " << line;
  }
  EXPECT_NE(text.find("\n1 error, 0 warnings, "), std::string::npos) << text;
  EXPECT_EQ(text.find("error    silent_devices  cuda:1 (GPU-00000001)"), 0u) << text;
}

TEST(Doctor, JsonIsAnArrayOfFindings) {
  Facts facts = well();
  facts.gpus[0].persistent = false;
  const auto value = boost::json::parse(findings_json(examine(facts)));
  const auto& first = value.as_array().at(0).as_object();
  EXPECT_EQ(first.at("severity").as_string(), "note");
  EXPECT_EQ(first.at("check").as_string(), "persistence");
  EXPECT_EQ(first.at("fix").as_string(), "sudo nvidia-smi -pm 1");
  EXPECT_EQ(findings_json({}), "[]\n");
}

}  // namespace
}  // namespace berth::cli
