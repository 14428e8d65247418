#include "cli/text/shards_text.hpp"

#include <boost/json.hpp>

#include "berth/shard_table.hpp"
#include "cli/text/answer_table.hpp"

namespace berth::cli {

namespace json = boost::json;

namespace {

std::string share_text(const Fields& owner, double all) {
  const auto shards = owner.number("shards");
  if (!shards || all <= 0) return "-";
  char text[16];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * *shards / all);
  return text;
}

std::string state_of(const Fields& deployment, const std::string& replica) {
  for (const json::value& entry : deployment.list("owners")) {
    const Fields owner(entry);
    if (owner.raw("replica") == replica) return owner.raw("state");
  }
  return {};
}

// What happens to requests if no replica may accept them.
std::string without_room(const KeyPlace& place, const std::string& for_what) {
  if (place.on_capacity_exhausted == "queue") return "wait" + for_what;
  const bool falls_back = place.on_capacity_exhausted == "fallback" && !place.fallback.empty();
  return falls_back ? "go to " + place.fallback + " instead" : "are rejected";
}

}  // namespace

std::string shards_text(const json::object& answer, const Style& style) {
  std::string out;
  for (const json::value& entry : Fields(answer).list("deployments")) {
    const Fields deployment(entry);
    const double all = deployment.number("shards").value_or(0);
    std::string head = deployment.text("name") + ": key " + deployment.text("key") + ", " +
                       deployment.word("affinity") + ", epoch " + deployment.count("epoch") + ", " +
                       deployment.count("shards_moved") + " of " + deployment.count("shards") +
                       " shards moved at the last change";
    out += (out.empty() ? "" : "\n") + head + "\n" +
           table_text(deployment.list("owners"),
                      {{"REPLICA", text_cell("replica"), 8},
                       {"STATE", state_cell("state", style)},
                       {">SHARDS", count_cell("shards")},
                       {">SHARE", [all](const Fields& owner) { return share_text(owner, all); }}},
                      style);
  }
  if (out.empty()) out = "no deployment has keys; set serving.key in its project file\n";
  return out;
}

Result<KeyPlace> place_of_key(const json::object& answer, const std::string& deployment, std::string_view key) {
  const json::array& all = Fields(answer).list("deployments");
  if (deployment.empty() && all.size() > 1)
    return Error{ErrorCode::invalid_argument, "several deployments have keys", "add --deployment NAME"};
  for (const json::value& entry : all) {
    const Fields fields(entry);
    if (!deployment.empty() && fields.raw("name") != deployment) continue;
    const ShardTable table = BERTH_TRY(ShardTable::parse(fields.raw("table")));
    KeyPlace place{fields.raw("name"),          fields.raw("affinity"),
                   table.space().shard_of(key), fields.raw("on_capacity_exhausted"),
                   fields.raw("fallback"),      {}};
    for (const DeviceId& id : table.in_order(place.shard))
      place.order.push_back({id.text(), state_of(fields, id.text())});
    return place;
  }
  return Error{ErrorCode::not_found,
               deployment.empty() ? "no deployment has keys" : "the deployment \"" + deployment + "\" has no keys",
               "set serving.key in its project file; berth shards lists the deployments with keys"};
}

std::string key_place_text(const KeyPlace& place, const Style& style) {
  if (place.order.empty()) return place.deployment + " has no replicas, so none has this key\n";
  const KeyPlace::Replica& owner = place.order.front();
  std::string text = owner.name + " has this key, which is in shard " + std::to_string(place.shard) + " of " +
                     place.deployment + ".\n";
  const bool is_ready = owner.state == "ready";
  if (!is_ready)
    text += owner.name +
            (owner.state.empty()     ? " does not serve yet"
             : owner.state == "gone" ? " cannot be reached"
                                     : " takes no new requests") +
            ".\n";
  if (place.affinity == "strict")
    return text + "Requests " + without_room(place, " for it") + (is_ready ? " while it is full.\n" : ".\n");
  json::array rows;
  for (std::size_t i = 0; i < place.order.size(); ++i) {
    json::object row{{"rank", i + 1}, {"replica", place.order[i].name}};
    if (!place.order[i].state.empty()) row["state"] = place.order[i].state;
    rows.push_back(std::move(row));
  }
  return text + "Requests go to the first of these that is ready and has room, and " + without_room(place, "") +
         " while there is none:\n" +
         table_text(
             rows,
             {{">", count_cell("rank")}, {"REPLICA", text_cell("replica"), 8}, {"STATE", state_cell("state", style)}},
             style);
}

json::object to_json(const KeyPlace& place) {
  json::array order;
  for (const KeyPlace::Replica& replica : place.order) {
    json::object entry{{"replica", replica.name}};
    if (!replica.state.empty()) entry["state"] = replica.state;
    order.push_back(std::move(entry));
  }
  return {{"deployment", place.deployment},
          {"affinity", place.affinity},
          {"shard", place.shard},
          {"on_capacity_exhausted", place.on_capacity_exhausted},
          {"order", std::move(order)}};
}

}  // namespace berth::cli
