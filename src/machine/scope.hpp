// A systemd scope for the processes of a command: a separate cgroup that contains all
// processes the command starts, and that every user can read.
//
// A scope is used only if it has no disadvantage for the command. A user's systemd ends all of its
// scopes when it stops, which is at the end of the last session of a user without lingering, where
// the command would otherwise keep running. A command of a service or of a job scheduler stays in
// its cgroup, so that its limits apply and it ends with the job; a replica with limits does not,
// because it outlives the agent that started it. Nothing fails without a scope: there is other
// evidence that a lease is alive.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace berth::machine {

// Whether a command that this process starts gets a scope.
enum class ScopeUse : std::uint8_t {
  opened,           // it gets one, if the user's systemd answers in time
  no_systemd,       // no systemd of this user is running
  outside_session,  // this process is not directly in a login session of its user
  not_lingering,    // the user's systemd ends with the last session
};
// `leaves_service`: even if this process is not in a login session.
ScopeUse scope_use(bool leaves_service = false);

// Whether the cgroup is a login session of the user.
bool is_session_of(std::uint32_t user, std::string_view cgroup);

// Limits on all processes of a scope together. Absent: no limit.
struct ScopeLimits {
  std::optional<std::uint64_t> memory_bytes_max;
  std::optional<double> cpus_max;  // cores' worth of time
  bool leaves_service = false;     // because of the limits, use a scope even if this process is not in a login session
  bool any() const noexcept { return memory_bytes_max || cpus_max; }
};

// Moves this process or a child of it into a new scope with that name. Returns the path
// of its cgroup; absent: there is no scope. Waits at most 100 ms for systemd to accept
// the request, and a second for it to move the process.
std::optional<std::string> open_scope(const std::string& name, const std::string& description, pid_t process,
                                      const ScopeLimits& limits = {});

// Why a process that should have a scope with these limits does not have all of them, or stricter ones. Absent: they
// hold.
std::optional<std::string> missing_limits(pid_t process, const ScopeLimits& limits);
// The same, read from the files of a control group.
std::optional<std::string> missing_limits(const std::string& cgroup_folder, const ScopeLimits& limits);

}  // namespace berth::machine
