// A systemd scope for the processes of a command: a cgroup of their own, in which
// the kernel counts whatever the command starts, and which every user can read.
//
// It is opened only where that takes nothing from the command. A user's systemd
// ends all of its scopes when it stops, with the last session of a user without
// lingering; a command started from a login would otherwise have lived on. A
// command of a service or of a job scheduler stays there: its limits apply, and it
// ends with it. Without a scope nothing fails: a lease has other signs of life.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace berth::machine {

// What becomes of a command that this process starts.
enum class ScopeUse : std::uint8_t {
  opened,           // it gets a scope, where the user's systemd answers in time
  no_systemd,       // this user has none running
  outside_session,  // this process is not directly in a login session of its user
  not_lingering,    // the user's systemd ends with the last session
};
ScopeUse scope_use();

// Whether the cgroup is a login session of the user.
bool is_session_of(std::uint32_t user, std::string_view cgroup);

// Moves this process, or a child of it, into a new scope of that name. The path of its
// cgroup; absent: there is no scope. Waits 100 ms for a systemd that does not answer, and
// a second for one that was asked and is slow.
std::optional<std::string> open_scope(const std::string& name, const std::string& description, pid_t process);

}  // namespace berth::machine
