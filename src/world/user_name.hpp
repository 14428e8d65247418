// Names of users, from the user database of the machine. That may be a directory service,
// so each user is looked up once per process.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "berth/result.hpp"

namespace berth::world {

// The name of the user, or the number if there is none. Safe for a terminal (see printable.hpp).
std::string user_name(std::uint32_t user);

// Names and numbers of the groups that the user is in.
std::set<std::string> groups_of(std::uint32_t user);

struct UserAccount {
  std::uint32_t user = 0, group = 0;
  std::string name, home;
  std::vector<std::uint32_t> groups;  // all groups of the user
};
// not_found: there is no such user; io: the database does not answer.
Result<UserAccount> find_user(const std::string& name);
// Changes this process to that user; may also be called right after a fork. False: the process must not continue.
// Until it executes another program, that user cannot inspect it (prctl, PR_SET_DUMPABLE), because its memory is a
// copy of its parent's.
[[nodiscard]] bool become(const UserAccount& account) noexcept;

// The owner of the process; absent: there is no such process, or it is hidden.
std::optional<std::uint32_t> user_of_process(std::uint32_t pid);

}  // namespace berth::world
