#include "cli/run.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <sstream>

#include "berth/bytes.hpp"
#include "cli/devices_text.hpp"
#include "cli/doctor.hpp"
#include "cli/launch.hpp"
#include "cli/record.hpp"
#include "cli/terminal.hpp"

namespace berth::cli {
namespace {

namespace json = boost::json;

constexpr int not_runnable = 126, not_there = 127;
// A command that faults again and again is the fault.
constexpr int restarts_max = 3;

// Everything a decision needs, opened in the order in which things can be wrong.
struct Desk {
  Wanted wanted;
  Lookout lookout;
  std::shared_ptr<Ledger> ledger;
};

Result<Desk> open_desk(const RequestArguments& arguments) {
  Result<Wanted> wanted = read_request(arguments);
  if (!wanted) return std::move(wanted).error();
  Result<Lookout> lookout = Lookout::open(arguments.backend, arguments.backends);
  if (!lookout) return std::move(lookout).error();
  lookout->include_fallback(arguments.backend || !arguments.only.empty());
  if (Result<void> resolved = resolve_devices(arguments, lookout->look(), wanted->hints); !resolved)
    return std::move(resolved).error();
  Result<std::shared_ptr<Ledger>> ledger = Ledger::open();
  if (!ledger) return std::move(ledger).error();
  return Desk{*std::move(wanted), *std::move(lookout), *std::move(ledger)};
}

// A record is a convenience; whoever decides goes on without it.
void keep_record(std::string_view verb, const std::string& program, const Reserved& decided) {
  const Result<std::string> folder = decisions_folder();
  if (!folder) return;
  static_cast<void>(
      store_record(*folder, make_record(verb, program, decided.explanation, decided.views, decided.sight.topology)));
}

int refuse(const Reserved& decided, const char* advice) {
  std::fprintf(stderr, "berth: %s; %s\n  %s\n", decided.explanation.reason().c_str(),
               decided.never ? "this machine cannot serve it even when idle" : advice,
               decided.explanation.funnel_text().c_str());
  return does_not_fit;
}

std::vector<DeviceInfo> chosen(const Reserved& decided) {
  std::vector<DeviceInfo> devices;
  for (const std::size_t winner : decided.winners) devices.push_back(decided.sight.devices[winner].info);
  return devices;
}

bool mps_runs() { return mps_pipe().has_value(); }

std::string describe(const Wanted& wanted, const DeviceInfo& device) {
  std::string text = device.id.text();
  if (!device.name.empty()) text += " (" + device.name + ")";
  const std::uint64_t bytes = wanted.hints.memory_bytes_needed(device).value_or(0);
  if (bytes) {
    text += ", " + bytes_text(bytes);
    if (device.memory_bytes_total) text += " of " + bytes_text(*device.memory_bytes_total);
  }
  if (wanted.hints.exclusive) text += bytes ? ", alone" : ", all of it";
  return text;
}

// Where the command runs, a line per device, and how strong the limits are.
void announce(const Wanted& wanted, std::span<const DeviceInfo> devices) {
  const bool mps = mps_runs();
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const std::string strength = strength_of(devices[i], mps);
    const bool repeated = i + 1 < devices.size() && strength_of(devices[i + 1], mps) == strength;
    std::fprintf(stderr, "berth: %s%s\n", describe(wanted, devices[i]).c_str(),
                 repeated ? "" : ("; " + strength).c_str());
  }
}

std::map<std::string, std::string> environment_for(const RunArguments& arguments, const Wanted& wanted,
                                                   std::span<const DeviceInfo> devices, std::span<const DeviceInfo> all,
                                                   std::uint64_t lease) {
  std::map<std::string, std::string> variables = visible_to(devices, all);
  if (!arguments.request.backends.simulated_file.empty())
    variables["BERTH_SIMULATED"] = arguments.request.backends.simulated_file;
  variables["BERTH_LEASE"] = std::to_string(lease);
  if (!mps_runs()) return variables;
  // The driver counts among the visible devices, from 0.
  std::string limits;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const std::uint64_t bytes = wanted.hints.memory_bytes_needed(devices[i]).value_or(0);
    if (devices[i].backend != "cuda" || bytes == 0) continue;
    limits += (limits.empty() ? "" : ",") + std::to_string(i) + "=" + std::to_string(bytes >> 20) + "M";
  }
  if (!limits.empty()) variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = limits;
  return variables;
}

std::vector<unsigned> cores_of(std::span<const DeviceInfo> devices) {
  std::vector<unsigned> cores;
  for (const DeviceInfo& device : devices) {
    const auto label = device.labels.find("cores");
    if (device.backend != "host" || label == device.labels.end()) return {};
    std::istringstream numbers(label->second);
    for (std::string number; std::getline(numbers, number, ',');)
      cores.push_back(static_cast<unsigned>(std::strtoul(number.c_str(), nullptr, 10)));
  }
  return cores;
}

// The command died of something that another try may survive: it crashed, or it
// failed and a driver reported an error on one of its devices meanwhile.
bool is_fault(const Ended& ended, Lookout& lookout, std::span<const DeviceInfo> devices, TimePoint began) {
  if (ended.was_asked || ended.status == 0) return false;
  if (ended.by_signal) {
    const int signal = ended.status - 128;
    return signal != SIGINT && signal != SIGTERM && signal != SIGHUP;
  }
  const Sight sight = lookout.look();
  return std::any_of(sight.devices.begin(), sight.devices.end(), [&](const SeenDevice& seen) {
    const bool ours = std::any_of(devices.begin(), devices.end(),
                                  [&](const DeviceInfo& device) { return device.id == seen.info.id; });
    return ours && seen.telemetry &&
           std::any_of(seen.telemetry->load.events.begin(), seen.telemetry->load.events.end(),
                       [&](const DeviceEvent& event) { return event.at >= began; });
  });
}

int status_of(const Error& error) {
  complain(error);
  if (error.code == ErrorCode::not_found) return not_there;
  return error.code == ErrorCode::invalid_argument ? not_runnable : world_failed;
}

}  // namespace

std::string strength_of(const DeviceInfo& device, bool mps) {
  if (device.id.text().starts_with("MIG-")) return "the hardware holds it to that (MIG)";
  if (device.backend == "cuda" && mps) return "the driver holds it to that (MPS)";
  return "admission only: nothing stops the command from using more";
}

std::map<std::string, std::string> visible_to(std::span<const DeviceInfo> devices, std::span<const DeviceInfo> all) {
  std::string ids, cuda, cuts;
  std::set<std::string> gpus, cut;
  const auto append = [](std::string& list, char separator, const std::string& item) {
    if (!list.empty()) list += separator;
    list += item;
  };
  for (const DeviceInfo& device : devices) {
    append(ids, ',', device.id.text());
    const bool part = device.features.contains("partition") && device.parent;
    const std::string& whole = part ? device.parent->text() : device.id.text();
    if (device.backend == "cuda" && gpus.insert(whole).second) append(cuda, ',', whole);
    if (!part || !cut.insert(whole).second) continue;
    // All parts of it, so that those chosen are the same in the command.
    std::string units;
    for (const DeviceInfo& other : all) {
      if (other.parent == device.parent && other.compute_units)
        append(units, ',', std::to_string(*other.compute_units));
    }
    append(cuts, ';', device.backend + ":" + whole + "=" + units);
  }
  std::map<std::string, std::string> variables{{"BERTH_VISIBLE_DEVICES", ids}, {"CUDA_VISIBLE_DEVICES", cuda}};
  if (!cuts.empty()) variables["BERTH_PARTITION"] = cuts;
  return variables;
}

int run_run(const RunArguments& arguments) {
  if (arguments.command.empty()) {
    return complain({ErrorCode::invalid_argument,
                     "no command was given",
                     "write it behind two dashes: berth run --mem 20G -- COMMAND",
                     {},
                     {}});
  }
  if (arguments.on_fault != "stop" && arguments.on_fault != "restart") {
    return complain({ErrorCode::invalid_argument,
                     "--on-fault cannot be '" + arguments.on_fault + "'",
                     "use stop or restart",
                     {},
                     {}});
  }
  Duration wait{}, load_lock{};
  for (const auto& [text, into] : {std::pair(&arguments.wait, &wait), std::pair(&arguments.load_lock, &load_lock)}) {
    if (text->empty()) continue;
    const Result<Duration> read = parse_duration(*text);
    if (!read) return complain(read.error());
    *into = *read;
  }
  // Said before anything is promised or waited for.
  const Result<std::string> program = find_command(arguments.command.front());
  if (!program) return status_of(program.error());
  Result<Desk> desk = open_desk(arguments.request);
  if (!desk) return complain(desk.error());
  desk->wanted.name = program->substr(program->rfind('/') + 1);
  if (load_lock > Duration::zero()) desk->wanted.load_lock = load_lock;

  for (int restarts = 0;; ++restarts) {
    const auto told = [&](const Explanation& explanation) {
      std::fprintf(stderr, "berth: waiting: %s\n", explanation.reason().c_str());
    };
    Result<Reserved> reserved = reserve(
        *desk->ledger, desk->wanted, [&] { return desk->lookout.look(); }, Deadline::after(real_clock(), wait),
        arguments.quiet ? std::function<void(const Explanation&)>() : told);
    if (!reserved) return complain(reserved.error());
    keep_record("run", *program, *reserved);
    if (!reserved->lease) return refuse(*reserved, "berth why says more, --wait waits for room");

    const std::uint64_t lease = *reserved->lease;
    const std::vector<DeviceInfo> devices = chosen(*reserved);
    const auto give_back = [&] {
      // A lease that is gone already is what was wanted.
      if (Result<Ledger::Lock> lock = desk->ledger->lock()) static_cast<void>(lock->release(lease));
    };
    if (!arguments.quiet) announce(desk->wanted, devices);
    Launch command{*program, arguments.command,
                   environment_for(arguments, desk->wanted, devices, desk->lookout.devices(), lease),
                   cores_of(devices)};
    const TimePoint began = real_clock().now();
    const Result<Ended> ended = launch(command, [&](std::uint32_t pid) -> Result<void> {
      const std::optional<Holder> holder = find_process(pid);
      if (!holder) return Error{ErrorCode::io, "the command ended before it began", {}, {}, {}};
      Result<Ledger::Lock> lock = desk->ledger->lock();
      if (!lock) return std::move(lock).error();
      return lock->take(lease, *holder);
    });
    give_back();
    if (!ended) return status_of(ended.error());
    if (arguments.on_fault != "restart" || !is_fault(*ended, desk->lookout, devices, began)) return ended->status;
    if (restarts == restarts_max) {
      std::fprintf(stderr, "berth: the command faulted %d times in a row and is not started again\n", restarts + 1);
      return ended->status;
    }
    std::fprintf(stderr, "berth: the command ended with status %d after a fault and is started again\n", ended->status);
  }
}

int run_pick(const PickArguments& arguments) {
  Result<Desk> desk = open_desk(arguments.request);
  if (!desk) return complain(desk.error());
  const Result<Reserved> decided = decide_once(*desk->ledger, desk->wanted, [&] { return desk->lookout.look(); });
  if (!decided) return complain(decided.error());
  keep_record("pick", {}, *decided);
  const std::vector<DeviceInfo> devices = chosen(*decided);
  if (devices.empty() && !arguments.json) return refuse(*decided, "berth why says more");
  std::string text;
  if (arguments.json) {
    json::object out{{"policy", decided->explanation.policy}};
    json::array picked;
    for (const std::size_t winner : decided->winners) {
      const DeviceView& view = decided->views[winner];
      json::object entry{{"id", view.info->id.text()}, {"backend", view.info->backend}, {"name", view.info->name}};
      if (const Maybe available = view.memory_bytes_available()) entry["memory_bytes_available"] = *available;
      picked.push_back(std::move(entry));
    }
    out["devices"] = std::move(picked);
    if (devices.empty()) out["reason"] = decided->explanation.reason();
    text = json::serialize(out) + "\n";
  } else if (arguments.environment) {
    text = "CUDA_VISIBLE_DEVICES=" + visible_to(devices, desk->lookout.devices())["CUDA_VISIBLE_DEVICES"] + "\n";
  } else {
    for (const DeviceInfo& device : devices) text += device.id.text() + "\n";
  }
  const int printed = print(text);
  return printed != done ? printed : devices.empty() ? does_not_fit : done;
}

}  // namespace berth::cli
