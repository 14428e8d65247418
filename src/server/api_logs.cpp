// The part of the API by which the output of a replica reaches its readers: a reader sends a request, the agent of
// the node learns about it with its orders and posts the output piece by piece, and each piece is answered when the
// reader has room for the next one. So a slow reader slows down its agent, but loses nothing.
#include <boost/json.hpp>
#include <utility>

#include "server/answers.hpp"
#include "server/api.hpp"

namespace berth::server {

namespace json = boost::json;

namespace {

constexpr std::uint64_t tail_max = 1'000'000;
// A piece that has waited this long is answered with "room": false, so that the agent asks again and does not appear
// silent.
constexpr Duration room_wait_max = std::chrono::seconds(2);
// An agent checks at least every few seconds whether its output is still being read.
constexpr Duration agent_silence_max = std::chrono::seconds(60);

// The advice names the job of the node's last report.
http::Response node_is_lost(const Leader& leader, const NodeId& node, const fleet::ReplicaKey& key) {
  std::string job = "JOB";
  if (const LastReport* const last = leader.last_report(node)) {
    for (const fleet::ReplicaReport& report : last->report.replicas)
      if (report.key == key && !report.job.empty()) job = report.job;
  }
  return http::error_response(503, "unavailable", "its node " + node.text() + " is lost",
                              "on that machine, the output is in agent/" + node.text() + "/jobs/" + job +
                                  "/output in the state folder of the agent's user");
}

// When a node has reported the end of an incarnation, the server forgets it, and the node removes its output.
std::string advice_about_earlier(const Leader& leader, const fleet::ReplicaKey& before) {
  const fleet::Assigned* found = nullptr;
  for (const auto& [node, list] : leader.state().assignments) {
    for (const fleet::Assigned& replica : list.assigned) {
      if (name_of(replica.key()) != name_of(before) || replica.generation >= before.generation) continue;
      if (!found || found->generation < replica.generation) found = &replica;
    }
  }
  if (found)
    return "the incarnation before it is on node " + found->place.node.text() + ": berth logs " +
           to_string(found->key());
  return "berth events --subject " + name_of(before) +
         " shows where it ran before; the output of an incarnation that has ended is removed";
}

}  // namespace

void Api::get_logs(const Call& call) {
  const DeploymentId name(call.part("NAME"));
  const std::string& number = call.part("N");
  const std::string replica = name.text() + "/" + number;
  const auto index = read_number(number, replicas_max);
  const auto generation = call.request.query.find("generation");
  const fleet::Assigned* found = nullptr;
  for (const auto& [node, list] : leader_.state().assignments) {
    for (const fleet::Assigned& assigned : list.assigned) {
      if (assigned.place.deployment != name || assigned.place.replica != index) continue;
      if (generation != call.request.query.end() && std::to_string(assigned.generation) != generation->second) continue;
      if (!found || found->generation < assigned.generation) found = &assigned;
    }
  }
  if (!found && !is_wanted(name, index)) return send(call.responder, no_replica(name, number));
  if (!found && generation != call.request.query.end())
    return call.responder.send(http::error_response(404, "not_found",
                                                    "there is no incarnation " + replica + "#" + generation->second,
                                                    "berth replicas " + replica +
                                                        " lists those that exist; the output of one that has ended "
                                                        "is removed"));
  if (!found)
    return call.responder.send(
        http::error_response(404, "not_found", replica + " is not running", "berth why replica " + replica));
  if (leader_.health(found->place.node) == controller::NodeHealth::lost)
    return call.responder.send(node_is_lost(leader_, found->place.node, found->key()));
  const auto tail = call.request.query.find("tail");
  const auto is_set = [&](const char* key) {
    const auto value = call.request.query.find(key);
    return value != call.request.query.end() && value->second != "0";
  };
  const std::string id = "l" + std::to_string(next_number_++);
  readers_.emplace(id, Reader{found->place.node, found->key(),
                              tail == call.request.query.end() ? 0 : read_number(tail->second, tail_max).value_or(0),
                              is_set("follow"), is_set("previous"), call.who.credential, call.responder});
  call.responder.on_gone([this, id] {
    const auto gone = readers_.find(id);
    if (gone == readers_.end()) return;
    answer_piece(gone->second, false, false);
    readers_.erase(gone);
  });
  orders_changed(found->place.node);
}

void Api::post_logs(const Call& call) {
  const std::string& id = call.part("ID");
  const auto found = readers_.find(id);
  if (found == readers_.end() || found->second.node != call.who.node)
    return send(call.responder, json::object{{"open", false}, {"room", false}});
  Reader& reader = found->second;
  reader.to_piece = call.responder;
  const bool is_missing = call.request.query.contains("missing");
  if (is_missing || call.request.query.contains("refused")) {
    reader.responder.send(
        is_missing
            ? http::error_response(404, "not_found", name_of(reader.key) + " " + call.request.body,
                                   advice_about_earlier(leader_, reader.key))
            : http::error_response(503, "unavailable", call.request.body, "try again when one of them has ended"));
    answer_piece(reader, false, false);
    readers_.erase(found);
    return;
  }
  if (!reader.stream) {
    http::StreamHead head;
    head.headers.set("content-type", "text/plain; charset=utf-8");
    head.reader_may_pause = true;
    reader.stream = reader.responder.stream(std::move(head));
  }
  reader.agent_seen_at = real_clock().now();
  if (!reader.stream->write(call.request.body)) return answer_piece(reader, false, false);
  if (call.request.query.contains("end")) {
    reader.stream->close();
    answer_piece(reader, false, false);
    readers_.erase(found);
    return;
  }
  reader.stream->on_room([this, id] {
    if (const auto now = readers_.find(id); now != readers_.end()) answer_piece(now->second, true, true);
  });
}

void Api::answer_piece(Reader& reader, bool is_open, bool has_room) {
  const std::optional<http::Responder> responder = std::exchange(reader.to_piece, std::nullopt);
  if (responder) send(*responder, json::object{{"open", is_open}, {"room", has_room}});
}

void Api::end_readers(TimePoint now, const std::function<bool(const std::string& credential)>& is_valid) {
  for (auto next = readers_.begin(); next != readers_.end();) {
    const auto entry = next++;
    Reader& reader = entry->second;
    if (!is_valid(reader.credential)) {
      reader.responder.send(http::error_response(401, "not_logged_in", "this token was revoked or has expired",
                                                 "berth token add creates another"));
      if (reader.stream) reader.stream->close();
      answer_piece(reader, false, false);
      readers_.erase(entry);
    } else if (!reader.stream && leader_.health(reader.node) == controller::NodeHealth::lost) {
      reader.responder.send(node_is_lost(leader_, reader.node, reader.key));
      readers_.erase(entry);
    } else if (reader.stream && reader.follows && now - reader.agent_seen_at > agent_silence_max) {
      // Only for readers that follow: for others, truncated output would look complete.
      reader.stream->close();
      readers_.erase(entry);
    } else if (now - reader.agent_seen_at > room_wait_max) {
      answer_piece(reader, true, false);
    }
  }
}

}  // namespace berth::server
