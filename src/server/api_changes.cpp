// The part of the API that changes the desired state and access rights, and the part that agents use.
#include <boost/json.hpp>

#include "fleet_format/fleet_json.hpp"
#include "server/answers.hpp"
#include "server/api.hpp"
#include "server/views.hpp"
#include "world/wall_time.hpp"

namespace berth::server {

namespace json = boost::json;
using fleet::Role;

void Api::get_project(const Call& call) {
  const fleet::Desired& desired = leader_.state().desired;
  json::object out{{"version", desired.version}};
  if (desired.version > 0) {
    Project project;
    project.cluster.name = desired.cluster;
    for (const auto& [name, wanted] : desired.deployments) project.deployments.push_back(wanted.spec);
    project.egress_preference = desired.egress_preference;
    out["project"] = format::project_to_json(project);
  }
  send(call.responder, out);
}

void Api::put_project(const Call& call) {
  struct Body {
    Project project;
    std::optional<std::uint64_t> version;
    bool dry_run = false;
  };
  const auto body = read_body(call.request, [](const json::object& object, const std::string& where) {
    format::check_members(object, {"project", "if_version", "dry_run"}, where);
    Body read;
    read.project = format::project_of(format::member(object, "project", where), where + ".project");
    read.version = format::optional_member(object, "if_version", where, format::whole_of);
    read.dry_run = dry_run_in(object, where);
    return read;
  });
  if (!body) return send(call.responder, body.error());
  make(call, leader_.propose(body->project, body->version), body->dry_run);
}

void Api::make(const Call& call, Result<Leader::Proposal> proposal, bool dry_run,
               const std::optional<DeploymentId>& shown) {
  if (!proposal) return send(call.responder, proposal.error());
  const controller::Preview preview = leader_.preview(*proposal);
  Leader::Applied applied = proposal->applied;
  if (!dry_run) {
    Result<Leader::Applied> made = leader_.make(*std::move(proposal), call.who.actor);
    if (!made) return send(call.responder, made.error());
    applied = *std::move(made);
    decide();
  }
  json::object out = applied_view(leader_, applied, preview, dry_run);
  if (auto view = shown ? deployment_view(leader_, *shown) : std::nullopt) out["deployment"] = *std::move(view);
  send(call.responder, out);
}

void Api::get_deployments(const Call& call) {
  send(call.responder, json::object{{"revision", leader_.change_count()}, {"deployments", deployments_view(leader_)}});
}

void Api::get_deployment(const Call& call) {
  const DeploymentId name(call.part("NAME"));
  auto view = deployment_view(leader_, name);
  if (!view) return send(call.responder, leader_.no_deployment(name));
  send(call.responder, json::object{{"revision", leader_.change_count()}, {"deployment", *std::move(view)}});
}

void Api::delete_deployment(const Call& call) {
  const DeploymentId name(call.part("NAME"));
  if (const auto removed = leader_.remove(name, call.who.actor); !removed) return send(call.responder, removed.error());
  decide();
  send(call.responder, json::object{{"version", leader_.state().desired.version}, {"removed", name.text()}});
}

void Api::post_scale(const Call& call) {
  struct Body {
    std::uint32_t replicas = 0;
    std::optional<std::uint64_t> version;
    bool dry_run = false;
  };
  const auto body = read_body(call.request, [](const json::object& object, const std::string& where) {
    format::check_members(object, {"replicas", "if_version", "dry_run"}, where);
    return Body{format::small_of(format::member(object, "replicas", where), where + ".replicas"),
                format::optional_member(object, "if_version", where, format::whole_of), dry_run_in(object, where)};
  });
  if (!body) return send(call.responder, body.error());
  const DeploymentId name(call.part("NAME"));
  make(call, leader_.propose_scale(name, body->replicas, body->version), body->dry_run, name);
}

void Api::post_rollout(const Call& call) {
  struct Body {
    RolloutRequest rollout;
    bool dry_run = false;
  };
  const auto body = read_body(call.request, [](const json::object& object, const std::string& where) {
    format::check_members(object, {"action", "reason", "to_revision", "dry_run"}, where);
    const std::string action = format::text_of(format::member(object, "action", where), where + ".action");
    Body read;
    if (action == "pause")
      read.rollout.action = RolloutAction::pause;
    else if (action == "resume")
      read.rollout.action = RolloutAction::resume;
    else if (action == "undo")
      read.rollout.action = RolloutAction::undo;
    else if (action == "restart")
      read.rollout.action = RolloutAction::restart;
    else
      throw format::JsonError{where + ".action is not pause, resume, undo or restart"};
    read.rollout.reason = reason_in(object, where);
    read.rollout.to_revision = format::optional_member(object, "to_revision", where, format::whole_of);
    if (read.rollout.to_revision && read.rollout.action != RolloutAction::undo)
      throw format::JsonError{where + ".to_revision is given, but only an undo can have it"};
    read.dry_run = dry_run_in(object, where);
    return read;
  });
  if (!body) return send(call.responder, body.error());
  if (body->rollout.action == RolloutAction::undo && !may(call.who, Role::deploy))
    return call.responder.send(
        http::error_response(403, "forbidden", "an undo needs the role deploy", advice_about_role(call.who)));
  const DeploymentId name(call.part("NAME"));
  make(call, leader_.propose_rollout(name, body->rollout, call.who.actor), body->dry_run, name);
}

namespace {

// The address of the peer, 127.0.0.1 if it is on this machine. A link-local address is left out, because it would mean
// a different machine on another link.
std::string came_from(const http::Peer& peer) {
  if (peer.is_loopback) return "127.0.0.1";
  return peer.address.starts_with("fe80:") ? std::string() : peer.address;
}

}  // namespace

void Api::post_report(const Call& call) {
  auto incoming = read_body(call.request, [](const json::object& object, const std::string& where) {
    LastReport read;
    read.report = format::node_report_of(object, where);
    return read;
  });
  const NodeId node = *call.who.node;
  if (!incoming) {
    leader_.refuse_report(node, incoming.error().message);
    return send(call.responder, incoming.error());
  }
  if (incoming->report.node.id != node) {
    leader_.refuse_report(node, "it is about " + incoming->report.node.id.text());
    return call.responder.send(http::error_response(403, "forbidden", "a node can report only about itself"));
  }
  incoming->address = came_from(call.request.peer);
  if (const auto taken = leader_.take_report(*std::move(incoming)); !taken) return send(call.responder, taken.error());
  if (const LastReport* const last = leader_.last_report(node)) {
    history_.add(last->report.node, last->report.devices, world::wall_time_ms());
    const auto list = leader_.state().assignments.find(node);
    static const std::vector<fleet::Assigned> none;
    counts_.take(last->report, list == leader_.state().assignments.end() ? none : list->second.assigned, last->at);
  }
  hooks_.wake();
  send(call.responder, json::object{{"epoch", leader_.epoch()},
                                    {"revision", leader_.orders_number(node)},
                                    {"now_at_ms", world::wall_time_ms()},
                                    {"address", leader_.address_of(node)}});
}

void Api::send_orders(const NodeId& node, const http::Responder& responder) {
  json::object out = format::to_json(leader_.orders(node));
  json::array logs;
  for (auto& [id, reader] : readers_) {
    if (reader.node != node || std::exchange(reader.is_sent, true)) continue;
    logs.push_back(json::object{{"id", id},
                                {"deployment", reader.key.deployment.text()},
                                {"replica", reader.key.replica},
                                {"generation", reader.key.generation},
                                {"tail", reader.tail},
                                {"follow", reader.follows},
                                {"previous", reader.previous}});
  }
  if (!logs.empty()) out["logs"] = std::move(logs);
  send(responder, out);
}

void Api::orders_changed(const NodeId& node) {
  const auto [first, last] = polls_.equal_range(node);
  for (auto poll = first; poll != last; ++poll) send_orders(node, poll->second.responder);
  polls_.erase(first, last);
}

void Api::get_assignments(const Call& call) {
  const auto query = [&](const char* name) {
    const auto found = call.request.query.find(name);
    return found == call.request.query.end() ? 0 : read_number(found->second, UINT64_MAX).value_or(0);
  };
  const NodeId node = *call.who.node;
  const bool has_logs = std::any_of(readers_.begin(), readers_.end(), [&](const auto& reader) {
    return reader.second.node == node && !reader.second.is_sent;
  });
  const std::uint64_t wait_s = std::min(query("wait_s"), wait_max_s);
  if (has_logs || wait_s == 0 || leader_.epoch() != query("epoch") || leader_.orders_number(node) != query("revision"))
    return send_orders(node, call.responder);
  const std::uint64_t number = next_number_++;
  polls_.emplace(node, Poll{call.responder, number});
  const auto end = [this, node, number](bool answer) {
    const auto [first, last] = polls_.equal_range(node);
    for (auto poll = first; poll != last; ++poll) {
      if (poll->second.number != number) continue;
      if (answer) send_orders(node, poll->second.responder);
      polls_.erase(poll);
      return;
    }
  };
  call.responder.on_gone([end] { end(false); });
  hooks_.after(std::chrono::seconds(wait_s), [end] { end(true); });
}

}  // namespace berth::server
