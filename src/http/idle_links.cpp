#include "http/idle_links.hpp"

#include <utility>

namespace berth::http {

std::unique_ptr<Link> IdleLinks::take(const std::string& server) {
  const auto found = idle_.find(server);
  if (found == idle_.end()) return nullptr;
  while (!found->second.empty()) {
    std::unique_ptr<Link> last = std::move(found->second.back().link);
    found->second.pop_back();
    if (!last->is_stale()) return last;
  }
  return nullptr;
}

void IdleLinks::put(const std::string& server, std::unique_ptr<Link> link) {
  idle_[server].push_back({std::move(link), real_clock().now()});
}

void IdleLinks::close_old(TimePoint now) {
  for (auto& [server, links] : idle_)
    std::erase_if(links, [&](const Idle& idle) { return idle.since < now - keep_time; });
  std::erase_if(idle_, [](const auto& item) { return item.second.empty(); });
}

std::size_t IdleLinks::count() const {
  std::size_t all = 0;
  for (const auto& [server, links] : idle_) all += links.size();
  return all;
}

}  // namespace berth::http
