#include "machine/scope.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <memory>
#include <sstream>

#include "berth/clock.hpp"
#include "ledger/process.hpp"
#include "world/files.hpp"
#include "world/user_name.hpp"

namespace berth::machine {
namespace {

// An idle systemd answers within 10 ms; a command does not wait longer than this.
constexpr Duration request_timeout = std::chrono::milliseconds(100);
// systemd moves the process some time after it has accepted the request.
constexpr Duration move_timeout = std::chrono::seconds(1);
constexpr Duration poll_period = std::chrono::microseconds(500);

// Not XDG_RUNTIME_DIR, which after su or sudo may still name another user's folder.
std::string socket_path() { return "/run/user/" + std::to_string(geteuid()) + "/systemd/private"; }

// The part of libsystemd that is needed, from sd-bus.h.
struct Bus;
struct Message;
struct Library {
  int (*sd_bus_new)(Bus**);
  int (*sd_bus_set_address)(Bus*, const char*);
  int (*sd_bus_start)(Bus*);
  int (*sd_bus_is_ready)(Bus*);
  int (*sd_bus_process)(Bus*, Message**);
  int (*sd_bus_wait)(Bus*, std::uint64_t);
  int (*sd_bus_call)(Bus*, Message*, std::uint64_t, void*, Message**);
  void (*sd_bus_close)(Bus*);
  Bus* (*sd_bus_unref)(Bus*);
  int (*sd_bus_message_new_method_call)(Bus*, Message**, const char*, const char*, const char*, const char*);
  int (*sd_bus_message_append)(Message*, const char*, ...);
  int (*sd_bus_message_open_container)(Message*, char, const char*);
  int (*sd_bus_message_close_container)(Message*);
  Message* (*sd_bus_message_unref)(Message*);
};

std::optional<Library> load_library() {
  // Never closed: the libraries that it loads keep state.
  void* const opened = dlopen("libsystemd.so.0", RTLD_LAZY | RTLD_LOCAL);
  if (opened == nullptr) return std::nullopt;
  Library library{};
  bool complete = true;
  const auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(opened, symbol));
    complete = complete && function != nullptr;
  };
#define BERTH_SYSTEMD_FIND(symbol) find(library.symbol, #symbol)
  BERTH_SYSTEMD_FIND(sd_bus_new);
  BERTH_SYSTEMD_FIND(sd_bus_set_address);
  BERTH_SYSTEMD_FIND(sd_bus_start);
  BERTH_SYSTEMD_FIND(sd_bus_is_ready);
  BERTH_SYSTEMD_FIND(sd_bus_process);
  BERTH_SYSTEMD_FIND(sd_bus_wait);
  BERTH_SYSTEMD_FIND(sd_bus_call);
  BERTH_SYSTEMD_FIND(sd_bus_close);
  BERTH_SYSTEMD_FIND(sd_bus_unref);
  BERTH_SYSTEMD_FIND(sd_bus_message_new_method_call);
  BERTH_SYSTEMD_FIND(sd_bus_message_append);
  BERTH_SYSTEMD_FIND(sd_bus_message_open_container);
  BERTH_SYSTEMD_FIND(sd_bus_message_close_container);
  BERTH_SYSTEMD_FIND(sd_bus_message_unref);
#undef BERTH_SYSTEMD_FIND
  return complete ? std::optional(library) : std::nullopt;
}

std::uint64_t microseconds_until(TimePoint deadline) {
  const Duration left = std::max(Duration::zero(), deadline - real_clock().now());
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(left).count());
}

// Uses systemd's private socket, as systemctl does, so that no bus daemon is needed.
bool connect(const Library& library, Bus* bus, TimePoint deadline) {
  if (library.sd_bus_set_address(bus, ("unix:path=" + socket_path()).c_str()) < 0) return false;
  if (library.sd_bus_start(bus) < 0) return false;
  while (library.sd_bus_is_ready(bus) == 0) {
    // The library's own calls would use its long timeout here.
    const int processed = library.sd_bus_process(bus, nullptr);
    const std::uint64_t left = microseconds_until(deadline);
    if (processed < 0 || left == 0) return false;
    const int waited = processed == 0 ? library.sd_bus_wait(bus, left) : 0;
    if (waited < 0 && waited != -EINTR) return false;
  }
  return library.sd_bus_is_ready(bus) > 0;
}

// Whether systemd got the request and did not refuse it.
bool start_scope(const Library& library, Bus* bus, const std::string& name, const std::string& description,
                 pid_t process, const ScopeLimits& limits, TimePoint deadline) {
  const auto pid = static_cast<std::uint32_t>(process);
  const auto no_limit = std::numeric_limits<std::uint64_t>::max();
  // By default a scope has a task limit that the session does not have, and ends as a
  // whole when the kernel kills one of its processes for lack of memory (OOMPolicy).
  // Older versions do not have OOMPolicy and refuse it.
  for (const bool knows_policy : {true, false}) {
    Message* made = nullptr;
    if (library.sd_bus_message_new_method_call(bus, &made, "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
                                               "org.freedesktop.systemd1.Manager", "StartTransientUnit") < 0)
      return false;
    const std::unique_ptr<Message, Message* (*)(Message*)> message(made, library.sd_bus_message_unref);
    const auto append = [&](const char* types, auto... values) {
      return library.sd_bus_message_append(made, types, values...) >= 0;
    };
    const auto property = [&](const char* key, const char* type, auto value) {
      return append("(sv)", key, type, value);
    };
    bool appended = append("ss", name.c_str(), "fail") &&
                    library.sd_bus_message_open_container(made, 'a', "(sv)") >= 0 &&
                    append("(sv)", "PIDs", "au", 1, pid) && property("Description", "s", description.c_str()) &&
                    property("CollectMode", "s", "inactive-or-failed") && property("TasksMax", "t", no_limit);
    if (knows_policy) appended = appended && property("OOMPolicy", "s", "continue");
    if (limits.memory_bytes_max) appended = appended && property("MemoryMax", "t", *limits.memory_bytes_max);
    if (limits.cpus_max)
      appended = appended && property("CPUQuotaPerSecUSec", "t", static_cast<std::uint64_t>(*limits.cpus_max * 1e6));
    appended = appended && library.sd_bus_message_close_container(made) >= 0 && append("a(sa(sv))", 0);
    const std::uint64_t left = microseconds_until(deadline);
    // For the library, 0 means its own long timeout.
    if (!appended || left == 0) return false;
    const int answer = library.sd_bus_call(bus, made, left, nullptr, nullptr);
    if (answer >= 0 || answer == -ETIMEDOUT) return true;
  }
  return false;
}

}  // namespace

bool is_session_of(std::uint32_t user, std::string_view cgroup) {
  const std::size_t last = cgroup.rfind('/');
  if (last == std::string_view::npos) return false;
  const std::string_view session = cgroup.substr(last + 1);
  return session.starts_with("session-") && session.ends_with(".scope") &&
         cgroup.substr(0, last).ends_with("/user-" + std::to_string(user) + ".slice");
}

ScopeUse scope_use(bool leaves_service) {
  std::error_code failed;
  if (!std::filesystem::exists(socket_path(), failed)) return ScopeUse::no_systemd;
  if (!leaves_service && !is_session_of(geteuid(), ledger::cgroup_of(static_cast<std::uint32_t>(getpid()))))
    return ScopeUse::outside_session;
  // Checked last: the name may come from a directory service.
  const bool lingers = std::filesystem::exists("/var/lib/systemd/linger/" + world::user_name(geteuid()), failed);
  return lingers ? ScopeUse::opened : ScopeUse::not_lingering;
}

std::optional<std::string> open_scope(const std::string& name, const std::string& description, pid_t process,
                                      const ScopeLimits& limits) {
  if (scope_use(limits.any() && limits.leaves_service) != ScopeUse::opened) return std::nullopt;
  const std::optional<Library> library = load_library();
  if (!library) return std::nullopt;
  const TimePoint deadline = real_clock().now() + request_timeout;
  Bus* bus = nullptr;
  if (library->sd_bus_new(&bus) < 0) return std::nullopt;
  const bool started =
      connect(*library, bus, deadline) && start_scope(*library, bus, name, description, process, limits, deadline);
  library->sd_bus_close(bus);
  library->sd_bus_unref(bus);
  // systemd answers before it moves the process.
  const TimePoint moved_by = deadline + move_timeout;
  while (started && real_clock().now() < moved_by) {
    std::string cgroup = ledger::cgroup_of(static_cast<std::uint32_t>(process));
    if (cgroup.ends_with("/" + name)) return cgroup;
    real_clock().sleep_for(poll_period);
  }
  return std::nullopt;
}

std::optional<std::string> missing_limits(const std::string& cgroup_folder, const ScopeLimits& limits) {
  constexpr double none = std::numeric_limits<double>::infinity();
  const auto open = [&](const char* file) {
    return std::istringstream(world::read_text(cgroup_folder + "/" + file).value_or("max"));
  };
  // The group may have other limits, which suffice if they are at least as strict.
  double bytes = 0, quota = 0, period = 1;
  if (!(open("memory.max") >> bytes)) bytes = none;
  if (!(open("cpu.max") >> quota >> period)) quota = none;
  const bool memory = limits.memory_bytes_max && bytes > static_cast<double>(*limits.memory_bytes_max);
  const bool cpus = limits.cpus_max && quota > *limits.cpus_max * period + 1;
  if (!memory && !cpus) return std::nullopt;
  return "control groups of this user do not limit " + std::string(memory && cpus ? "memory and processors"
                                                                   : memory       ? "memory"
                                                                                  : "processors");
}

std::optional<std::string> missing_limits(pid_t process, const ScopeLimits& limits) {
  switch (scope_use(limits.leaves_service)) {
    case ScopeUse::no_systemd: return "its user has no running systemd (loginctl enable-linger)";
    case ScopeUse::outside_session: return "it was not started in a login session";
    case ScopeUse::not_lingering: return "lingering is off for its user (loginctl enable-linger)";
    case ScopeUse::opened: break;
  }
  return missing_limits("/sys/fs/cgroup" + ledger::cgroup_of(static_cast<std::uint32_t>(process)), limits);
}

}  // namespace berth::machine
