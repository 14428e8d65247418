// The part of the leader that reports problems of nodes, deployments and the store.
#include "server/acceptance.hpp"
#include "server/leader.hpp"

namespace berth::server {

using fleet::EventKind;

void Leader::refuse_report(const NodeId& node, const std::string& why) {
  if (!state_.nodes.contains(node)) return;
  set_problem(refused_reports_[node], "its last report was refused: " + bounded_reason(why));
  note_problem(node);
}

// Writes one event for each change of the problem, unless an earlier leader has already written it.
void Leader::note_problem(const NodeId& node) {
  if (later_epoch(node)) return;  // note_ignoring() writes that event
  const std::string actor = "node:" + node.text(), subject = "node/" + node.text();
  const auto [noted, is_first] = noted_problems_.try_emplace(node);
  if (is_first) {
    for (const fleet::Event& event : events_)
      if (event.kind == EventKind::node && event.actor == actor && event.subject == subject) noted->second = event.text;
  }
  const std::string problem = node_problem(node);
  const std::string text =
      problem.empty() ? node.text() + " no longer reports a problem" : node.text() + ": " + problem;
  if (text == noted->second || (problem.empty() && noted->second.empty())) return;
  if (note({event(EventKind::node, actor, subject, text)})) noted_problems_[node] = text;
}

std::map<std::string, std::string> Leader::warnings() const {
  std::map<std::string, std::string> all;
  if (!state_.damaged.empty()) {
    all["store"] = state_.damaged.front();
    if (const std::size_t more = state_.damaged.size() - 1; more > 0)
      all["store"] += " (and " + std::to_string(more) + (more == 1 ? " other)" : " others)");
  }
  for (const DeploymentId& name : state_.unreadable)
    all["deployment/" + name.text()] =
        "its record in the store is damaged: its replicas stay as they are until it is applied again or deleted";
  for (const auto& [name, why] : blocked_) all["deployment/" + name.text()] = why;
  std::uint64_t ignoring = 0;
  for (const auto& [node, record] : state_.nodes) {
    if (is_ignored_by(node))
      ++ignoring;
    else if (std::string problem = node_problem(node); !problem.empty())
      all["node/" + node.text()] = std::move(problem);
  }
  if (ignoring > 0) {
    std::string& text = all["store"];
    text +=
        (text.empty() ? "" : ". ") +
        (ignoring == 1 ? std::string("1 node ignores") : std::to_string(ignoring) + " nodes ignore") +
        " this server because the store is older than the last accepted one. Stop the server, run berth store advance, "
        "and start it again";
  }
  return all;
}

bool Leader::is_ignored_by(const NodeId& node) const {
  return later_epoch(node) && health(node) != controller::NodeHealth::lost;
}

std::string Leader::node_problem(const NodeId& node) const {
  if (const auto later = later_epoch(node))
    return "it ignores this server: it has followed a server of epoch " + std::to_string(*later) +
           ", and this one has epoch " + std::to_string(epoch_) + "; berth status shows what to do";
  if (const auto refused = refused_reports_.find(node); refused != refused_reports_.end()) return refused->second;
  const LastReport* const last = last_report(node);
  return last ? last->report.problem : "";
}

}  // namespace berth::server
