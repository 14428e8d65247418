// A situation of why_situations.hpp as a file of simulated devices and a request of
// `berth pick`, and what `berth why` then names as the cause.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "why_situations.hpp"

namespace berth::bench {

// The parts of spoil() that a file of simulated devices can express: cordoned or draining,
// an old model, avoided, memory in use.
inline const std::vector<int> command_spoils{0, 3, 4, 6};

class Command {
 public:
  // Empty if the command is not built next to this benchmark.
  static std::optional<Command> find() {
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
    const std::filesystem::path berth = self.parent_path().parent_path() / "berth";
    if (!std::filesystem::exists(berth)) return std::nullopt;
    char folder[] = "/tmp/berth-why-XXXXXX";
    if (::mkdtemp(folder) == nullptr) return std::nullopt;
    return Command(berth.string(), folder);
  }
  Command(Command&& other) noexcept : berth_(std::move(other.berth_)), folder_(std::exchange(other.folder_, {})) {}
  ~Command() {
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }

  struct Answer {
    int status = 0;       // of berth pick
    std::string refusal;  // what it printed
    std::string why;      // berth why --json
  };
  Answer ask(const Situation& s) const {
    // A ledger and records of its own for each situation.
    const std::filesystem::path state = folder_ / "state";
    std::filesystem::remove_all(state);
    std::filesystem::create_directories(state);
    std::filesystem::permissions(state, std::filesystem::perms::owner_all);
    ::setenv("BERTH_RUNTIME_DIR", state.c_str(), 1);
    write_devices(s);
    for (std::size_t i = 0; i < s.machine.views.size(); ++i) {
      const Intent intent = s.machine.views[i].intent;
      if (intent == Intent::in_service) continue;
      run((intent == Intent::cordoned ? "cordon " : "drain ") + s.machine.infos[i].id.text() + simulated());
    }
    Answer answer;
    std::tie(answer.status, answer.refusal) = run("pick" + options(s) + simulated());
    answer.why = run("why --json").second;
    return answer;
  }

 private:
  Command(std::string berth, std::filesystem::path folder) : berth_(std::move(berth)), folder_(std::move(folder)) {}

  std::string simulated() const { return " --simulated " + (folder_ / "devices.toml").string(); }

  void write_devices(const Situation& s) const {
    std::ofstream file(folder_ / "devices.toml");
    for (std::size_t i = 0; i < s.machine.infos.size(); ++i) {
      const DeviceInfo& info = s.machine.infos[i];
      // No lease is out, so bytes that the situation has promised are in use here.
      const DeviceView& view = s.machine.views[i];
      const OptionalU64 free = view.memory_bytes_free;
      file << "[[device]]\nid = \"" << info.id.text() << "\"\n";
      if (free) file << "memory_bytes = " << *info.memory_bytes_total << "\n";
      if (free) file << "foreign_bytes = " << *info.memory_bytes_total - *free + view.memory_bytes_promised << "\n";
      file << "capability = \"" << to_string(*info.capability) << "\"\n";
      if (!info.memory_domain.empty()) file << "memory_domain = \"" << info.memory_domain << "\"\n";
      const char* separator = "features = [";
      for (const std::string& feature : info.features) {
        file << separator << '"' << feature << '"';
        separator = ", ";
      }
      file << "]\n[device.labels]\n";
      for (const auto& [key, value] : info.labels) file << key << " = \"" << value << "\"\n";
    }
  }

  static std::string options(const Situation& s) {
    const Requirements& r = s.requirements;
    std::string out = " --backend simulated --mem " + std::to_string(r.memory_bytes_min) + "B -n " +
                      std::to_string(s.count) + " --capability " + to_string(*r.capability_min);
    for (const std::string& feature : r.features) out += " --feature " + feature;
    for (const auto& [key, value] : r.labels) out += " --label " + key + "=" + value;
    for (const DeviceId& id : r.only) out += " --device " + id.text();
    for (const DeviceId& id : r.avoid) out += " --avoid " + id.text();
    return out;
  }

  // Exit status and everything that was printed.
  std::pair<int, std::string> run(const std::string& arguments) const {
    std::FILE* const pipe = ::popen((berth_ + " " + arguments + " 2>&1").c_str(), "r");
    if (pipe == nullptr) return {-1, "the command could not be started"};
    std::string out;
    char buffer[4096];
    while (const std::size_t read = std::fread(buffer, 1, sizeof buffer, pipe)) out.append(buffer, read);
    const int status = ::pclose(pipe);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, out};
  }

  std::string berth_;
  std::filesystem::path folder_;
};

}  // namespace berth::bench
