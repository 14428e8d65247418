#include "machine/port_owner.hpp"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <sstream>

#include "machine/job_processes.hpp"
#include "world/descriptor.hpp"

namespace berth::machine {
namespace {

namespace fs = std::filesystem;

constexpr Duration refused_for = std::chrono::seconds(1);
constexpr std::size_t processes_max = 1000;  // at most this many processes of the job are checked first

// Whether the relay would reach a socket with this address. An IPv6 socket accepts IPv4 connections too, unless it is
// IPv6-only.
bool takes_loopback(int family, const std::uint32_t* address) {
  const auto is_ours = [](std::uint32_t v4) { return v4 == htonl(INADDR_ANY) || v4 == htonl(INADDR_LOOPBACK); };
  if (family == AF_INET) return is_ours(address[0]);
  const bool is_any = address[0] == 0 && address[1] == 0 && address[2] == 0 && address[3] == 0;
  const bool is_mapped = address[0] == 0 && address[1] == 0 && address[2] == htonl(0xffff);
  return is_any || (is_mapped && is_ours(address[3]));
}

bool is_ipv6_only(const nlmsghdr* head) {
  unsigned left = head->nlmsg_len - NLMSG_LENGTH(sizeof(inet_diag_msg));
  const auto* attribute =
      reinterpret_cast<const rtattr*>(reinterpret_cast<const char*>(head) + NLMSG_SPACE(sizeof(inet_diag_msg)));
  for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left))
    if (attribute->rta_type == INET_DIAG_SKV6ONLY) return *reinterpret_cast<const char*>(RTA_DATA(attribute)) != 0;
  return false;
}

// Asks the kernel only for listening sockets, because /proc/net/tcp lists every connection of the machine.
bool ask_kernel(int family, std::uint16_t port, std::vector<std::uint64_t>& inodes) {
  const world::Descriptor kernel(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!kernel) return false;
  struct {
    nlmsghdr head{};
    inet_diag_req_v2 request{};
  } question;
  question.head.nlmsg_len = sizeof question;
  question.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.head.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  question.request.sdiag_family = static_cast<std::uint8_t>(family);
  question.request.sdiag_protocol = IPPROTO_TCP;
  question.request.idiag_states = 1u << TCP_LISTEN;
  question.request.id.idiag_sport = htons(port);
  if (::send(kernel.get(), &question, sizeof question, 0) != sizeof question) return false;
  alignas(nlmsghdr) std::array<char, 32 * 1024> buffer{};
  while (true) {
    const ssize_t got = ::recv(kernel.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    auto left = static_cast<unsigned>(got);
    for (auto* head = reinterpret_cast<nlmsghdr*>(buffer.data()); NLMSG_OK(head, left); head = NLMSG_NEXT(head, left)) {
      if (head->nlmsg_type == NLMSG_DONE) return true;
      if (head->nlmsg_type != SOCK_DIAG_BY_FAMILY) return false;
      inet_diag_msg found{};
      std::memcpy(&found, NLMSG_DATA(head), sizeof found);
      if (found.id.idiag_sport == htons(port) && takes_loopback(family, found.id.idiag_src) && !is_ipv6_only(head))
        inodes.push_back(found.idiag_inode);
    }
  }
}

// Lines such as "  0: 0100007F:9C41 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000  0 4711 ...".
bool read_table(int family, std::uint16_t port, std::vector<std::uint64_t>& inodes) {
  std::ifstream table(family == AF_INET ? "/proc/net/tcp" : "/proc/net/tcp6");
  if (!table) return family == AF_INET6;  // a kernel without IPv6
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream words(line);
    std::string number, local, remote, state, queues, timer, again, user, timeout;
    std::uint64_t inode = 0;
    words >> number >> local >> remote >> state >> queues >> timer >> again >> user >> timeout >> inode;
    const std::size_t colon = local.find(':');
    if (state != "0A" || colon == std::string::npos) continue;
    if (std::stoul(local.substr(colon + 1), nullptr, 16) != port) continue;
    // Words of four bytes in the order of this machine.
    std::array<std::uint32_t, 4> address{};
    for (std::size_t i = 0; i < colon / 8 && i < address.size(); ++i)
      address[i] = static_cast<std::uint32_t>(std::stoul(local.substr(8 * i, 8), nullptr, 16));
    if (takes_loopback(family, address.data())) inodes.push_back(inode);
  }
  return true;
}

std::string socket_text(std::uint64_t inode) { return "socket:[" + std::to_string(inode) + "]"; }

std::string link_of(const std::string& path) {
  std::array<char, 64> text{};
  const ssize_t size = ::readlink(path.c_str(), text.data(), text.size());
  return size > 0 ? std::string(text.data(), static_cast<std::size_t>(size)) : std::string();
}

// Calls use(path, inode) for the sockets of a process until it returns false.
void for_each_socket(std::uint32_t pid, const std::function<bool(const std::string&, std::uint64_t)>& use) {
  std::error_code failed;
  for (fs::directory_iterator entry("/proc/" + std::to_string(pid) + "/fd", failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string path = entry->path().native(), text = link_of(path);
    if (!text.starts_with("socket:[")) continue;
    std::uint64_t inode = 0;
    std::from_chars(text.data() + 8, text.data() + text.size(), inode);
    if (!use(path, inode)) return;
  }
}

// The process that has the socket, for the message. Absent if it belongs to another user.
std::optional<std::uint32_t> process_with(std::uint64_t inode) {
  std::optional<std::uint32_t> found;
  std::error_code failed;
  for (fs::directory_iterator entry("/proc", failed), end; !failed && !found && entry != end; entry.increment(failed)) {
    const std::string name = entry->path().filename().native();
    std::uint32_t pid = 0;
    const auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || rest != name.data() + name.size()) continue;
    for_each_socket(pid, [&](const std::string&, std::uint64_t candidate) {
      if (candidate == inode) found = pid;
      return !found;
    });
  }
  return found;
}

// The command of the job and the processes it has started, as far as the kernel lists children.
std::vector<ProcessIdentity> command_of(const Job& job) {
  std::vector<ProcessIdentity> all;
  if (job.progress.command && is_process_of(job, *job.progress.command)) all.push_back(*job.progress.command);
  for (std::size_t at = 0; at < all.size() && all.size() < processes_max; ++at) {
    const std::string pid = std::to_string(all[at].pid);
    std::error_code failed;
    for (fs::directory_iterator task("/proc/" + pid + "/task", failed), end; !failed && task != end;
         task.increment(failed)) {
      std::ifstream children(task->path() / "children");
      for (std::uint32_t child = 0; children >> child;)
        if (const auto found = find_process(child); found && is_process_of(job, *found)) all.push_back(*found);
    }
  }
  return all;
}

}  // namespace

Result<std::vector<std::uint64_t>> listeners_on(std::uint16_t port) {
  std::vector<std::uint64_t> inodes;
  for (const int family : {AF_INET, AF_INET6}) {
    const std::size_t before = inodes.size();
    if (ask_kernel(family, port, inodes)) continue;
    inodes.resize(before);
    if (!read_table(family, port, inodes))
      return Error{ErrorCode::io, "this kernel does not report which process listens on a port"};
  }
  std::sort(inodes.begin(), inodes.end());
  return inodes;
}

std::vector<std::uint64_t> PortOwners::unknown(const std::string& folder,
                                               const std::vector<std::uint64_t>& inodes) const {
  std::vector<std::uint64_t> left;
  std::copy_if(inodes.begin(), inodes.end(), std::back_inserter(left), [&](std::uint64_t inode) {
    const auto held = held_.find(inode);
    return held == held_.end() || held->second.folder != folder ||
           link_of(held->second.descriptor) != socket_text(inode) ||
           find_process(held->second.process.pid) != held->second.process;
  });
  return left;
}

bool PortOwners::take_sockets(const std::string& folder, const ProcessIdentity& process,
                              const std::vector<std::uint64_t>& inodes) {
  for_each_socket(process.pid, [&](const std::string& descriptor, std::uint64_t inode) {
    if (std::binary_search(inodes.begin(), inodes.end(), inode))
      held_.insert_or_assign(inode, Held{folder, process, descriptor});
    return true;
  });
  return unknown(folder, inodes).empty();
}

Result<void> PortOwners::check(std::uint16_t port, const std::string& folder, const std::string& name) {
  const std::vector<std::uint64_t> inodes = BERTH_TRY(listeners_on(port));
  const std::string where = "port " + std::to_string(port);
  if (inodes.empty()) return Error{ErrorCode::unavailable, "nothing listens on " + where + ", the port of " + name};
  if (unknown(folder, inodes).empty()) return {};
  const TimePoint now = real_clock().now();
  std::erase_if(refused_, [&](const auto& entry) { return now >= entry.second.until; });
  if (const auto known = refused_.find(port);
      known != refused_.end() && known->second.folder == folder && known->second.inodes == inodes)
    return known->second.error;
  const fs::path path = folder;
  const Job job = BERTH_TRY(find_job(path.parent_path(), path.filename()));
  std::erase_if(held_, [&](const auto& entry) { return entry.second.folder == folder; });
  for (const ProcessIdentity& process : command_of(job))
    if (take_sockets(folder, process, inodes)) return {};
  for (const ProcessIdentity& process : JobProcesses().of(job))
    if (take_sockets(folder, process, inodes)) return {};
  const std::optional<std::uint32_t> pid = process_with(unknown(folder, inodes).front());
  const Error error{
      ErrorCode::unavailable,
      where + " belongs to another process" + (pid ? " (pid " + std::to_string(*pid) + ")" : "") + ", not to " + name};
  refused_.insert_or_assign(port, Refused{folder, inodes, error, now + refused_for});
  return error;
}

}  // namespace berth::machine
