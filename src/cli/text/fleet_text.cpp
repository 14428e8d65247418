#include "cli/text/fleet_text.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <map>

#include "berth/bytes.hpp"
#include "cli/text/answer_table.hpp"
#include "cli/text/spec_text.hpp"
#include "deployment/replica_ranges.hpp"
#include "inventory/short_id.hpp"

namespace berth::cli {

using namespace inventory;
using namespace world;
namespace {

namespace json = boost::json;

bool is_gpu(const Fields& device) { return !device.is("is_fallback") && device.raw("backend") != "host"; }
bool is_free(const Fields& device, const Fields& node) {
  return node.raw("health") == "healthy" && node.raw("intent") == "in_service" && device.raw("health") == "healthy" &&
         device.raw("intent") == "in_service" && device.list("holders").empty();
}
std::string share_text(const Fields& row, std::string_view part, std::string_view whole) {
  return row.has(whole) ? row.bytes(part) + " of " + row.bytes(whole) : "-";
}
// Memory for new work. The last measurement of a lost device says nothing about its present state.
std::string free_memory_text(const Fields& device) {
  const auto free = device.number("memory_bytes_free"), total = device.number("memory_bytes_total");
  if (!free || !total || device.raw("health") == "lost") return "-";
  const double promised = device.number("memory_bytes_promised").value_or(0);
  const auto bytes = [](double count) { return bytes_text(static_cast<std::uint64_t>(std::max(0.0, count))); };
  return bytes(*free - promised) + " of " + bytes(*total);
}

std::string devices_text(const Fields& row, std::span<const DeviceId> all) {
  std::string text;
  for (const DeviceId& id : row.devices()) text += (text.empty() ? "" : ",") + printable(short_id(id, all));
  return text.empty() ? "-" : text;
}

std::vector<std::uint32_t> indices(const Fields& pending) {
  std::vector<std::uint32_t> indices;
  for (const json::value& replica : pending.list("replicas")) {
    if (replica.is_int64()) indices.push_back(static_cast<std::uint32_t>(replica.get_int64()));
  }
  return indices;
}
std::size_t weight(const Fields& pending) { return std::max<std::size_t>(1, pending.list("replicas").size()); }

// Sorts by the number of replicas that each reason keeps out, largest first.
std::vector<Fields> dominant_first(const json::array& pending) {
  std::map<std::string, std::size_t> replicas;
  std::vector<Fields> sorted;
  for (const json::value& entry : pending) {
    sorted.emplace_back(entry);
    replicas[sorted.back().in("reason").raw("kind")] += weight(sorted.back());
  }
  std::stable_sort(sorted.begin(), sorted.end(), [&](const Fields& a, const Fields& b) {
    const auto key = [&](const Fields& entry) {
      const std::string kind = entry.in("reason").raw("kind");
      return std::tuple(~replicas.at(kind), kind, ~weight(entry));
    };
    return key(a) < key(b);
  });
  return sorted;
}

std::string change_text(const Fields& change) {
  return change.text("text") + (change.has("command") ? ": " + change.text("command") : "");
}

constexpr std::size_t shown_max = 12;  // of a list on one screen

std::string pending_text(const json::array& pending, const Style& style) {
  std::string text;
  std::size_t shown = 0;
  for (const Fields& entry : dominant_first(pending)) {
    if (shown++ == shown_max) {
      text += "  and " + std::to_string(pending.size() - shown_max) + " more\n";
      break;
    }
    const std::string ranges = deployment::replica_ranges(indices(entry));
    text += paragraph("! " + entry.text("deployment") + (ranges.empty() ? "" : "/" + ranges) + "  pending: ",
                      entry.in("reason").text("text"), style);
    const Fields change = entry.in("change");
    if (!change.has("text")) continue;
    text += paragraph("  would fit: ", change_text(change), style);
  }
  return text;
}

std::string deployment_table(const json::array& deployments, const Style& style) {
  return table_text(deployments,
                    {{"DEPLOYMENT", text_cell("name"), 8},
                     {"STATE", state_cell("state", style)},
                     {">READY", [](const Fields& row) { return row.count("ready") + "/" + row.count("replicas"); }},
                     {">UPDATED", count_cell("updated"), 0, 2},
                     {">REVISION", count_cell("revision"), 0, 1}},
                    style) +
         reasons_text(deployments, text_cell("name"), style);
}

// One row per incarnation; the name of an older incarnation includes its generation.
std::string replica_table(const json::array& replicas, const Style& style) {
  std::vector<DeviceId> all;
  for (const json::value& replica : replicas) {
    for (DeviceId& id : Fields(replica).devices()) all.push_back(std::move(id));
  }
  const auto name = [](const Fields& row) {
    return row.text("name") + (row.has("current") && !row.is("current") ? "#" + row.count("generation") : "");
  };
  return table_text(replicas,
                    {{"REPLICA", name, 8},
                     {"STATE", state_cell("state", style)},
                     {"NODE", text_cell("node"), 6},
                     {"DEVICE", [&](const Fields& row) { return devices_text(row, all); }, 0, 4, true},
                     {">MEMORY", bytes_cell("memory_bytes"), 0, 3},
                     {">REVISION", count_cell("revision"), 0, 1},
                     {">PORT", count_cell("port"), 0, 2},
                     {">RESTARTS", count_cell("restarts"), 0, 2},
                     {">AGE", [](const Fields& row) { return row.age_since("started_at_ms"); }}},
                    style) +
         reasons_text(replicas, name, style);
}

// The replicas by name, then the others in the order of the answer.
std::string holders_text(const Fields& device) {
  std::vector<std::string> replicas, all;
  for (const json::value& value : device.list("holders")) {
    const Fields holder(value);
    const std::string kind = holder.raw("kind");
    (kind == "replica" ? replicas : all)
        .push_back((kind == "lease" || kind == "foreign" ? holder.text("kind") + " " : "") + holder.text("name") +
                   (kind == "replica" || !holder.has("user") ? "" : " (" + holder.text("user") + ")"));
  }
  std::sort(replicas.begin(), replicas.end());
  all.insert(all.begin(), replicas.begin(), replicas.end());
  std::string text;
  for (const std::string& name : all) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "-" : text;
}

// The devices of a node, or of the whole fleet: these rows have a member "node", which identifies them together with
// the ordinal, so that ids may be dropped.
std::string device_table(const json::array& devices, bool is_of_fleet, const Style& style) {
  std::vector<DeviceId> all;
  for (const json::value& device : devices) all.emplace_back(Fields(device).raw("id"));
  const auto id = [&](const Fields& row) { return printable(short_id(DeviceId(row.raw("id")), all)); };
  // A health problem takes precedence over an intent.
  const auto device_state = [&](const Fields& row) {
    if (!row.has("health")) return paint(style, Colour::yellow, "unknown");
    return state_cell(row.raw("intent") == "in_service" || row.raw("health") != "healthy" ? "health" : "intent",
                      style)(row);
  };
  const auto unit = [](const char* key, double factor, const char* unit) {
    return [=](const Fields& row) {
      const auto number = row.number(key);
      return number && row.raw("health") != "lost" ? std::to_string(static_cast<int>(*number * factor + 0.5)) + unit
                                                   : std::string("-");
    };
  };
  std::vector<TableColumn> columns{
      {"DEVICE", [](const Fields& row) { return row.text("backend") + ":" + row.count("ordinal"); }},
      {"ID", id, 0, is_of_fleet ? 3 : 0, true},
      {"NAME", text_cell("name"), 13, 4},
      {"STATE", device_state},
      {">FREE MEMORY", free_memory_text, 0, 6},
      {">LOAD", unit("utilization", 100, "%"), 0, 2},
      {">TEMP", unit("temperature_celsius", 1, " C"), 0, 1},
      {"HELD BY", holders_text, 16}};
  if (is_of_fleet) columns.insert(columns.begin(), {"NODE", text_cell("node"), 8});
  return table_text(devices, columns, style);
}

std::string unhealthy_line(const std::string& node, const std::string& device, const Fields& row, const Style& style) {
  return paragraph("! " + node + "  ",
                   device + " is " + row.word("health") + (row.has("advice") ? "; " + row.text("advice") : ""), style);
}
// " by user:ann: its fan is loud", to follow the intent.
std::string intent_reason(const Fields& row) {
  if (row.raw("intent") == "in_service") return "";
  return (row.has("intent_by") ? " by " + row.text("intent_by") : "") +
         (row.has("intent_reason") ? ": " + row.text("intent_reason") : "");
}
// `is_empty`: no replica is left, so a drain is over.
std::string intent_line(const std::string& node, const std::string& device, const Fields& row, bool is_empty,
                        const Style& style) {
  const std::string intent = row.raw("intent") != "draining" ? row.word("intent")
                             : is_empty                      ? "drained"
                                                             : "being drained";
  return paragraph("! " + node + "  ", device + "is " + intent + intent_reason(row), style);
}
bool holds_replicas(const Fields& device) {
  const json::array& holders = device.list("holders");
  return std::any_of(holders.begin(), holders.end(),
                     [](const json::value& holder) { return Fields(holder).raw("kind") == "replica"; });
}
// One line for a silent node: "! gpu-3  is lost: no report for 49 s; ...".
std::string health_line(const std::string& name, const Fields& node, const Style& style) {
  if (node.raw("health") == "healthy") return "";
  const std::string state = node.raw("health") == "unknown" ? "has an unknown state" : "is " + node.word("health");
  return paragraph("! " + name + "  ", state + (node.has("health_reason") ? ": " + node.text("health_reason") : ""),
                   style);
}
// One line for each device that is not healthy or not in service. The devices of a lost node are not listed.
std::string unhealthy_text(const Fields& node, const Style& style) {
  std::string text;
  for (const json::value& value : node.list("devices")) {
    const Fields device(value);
    if (node.raw("health") != "lost" && device.has("health") && device.raw("health") != "healthy")
      text += unhealthy_line(node.text("name"), device.text("id"), device, style);
    if (node.raw("health") != "lost" && device.has("intent_by") && device.raw("intent") != "in_service")
      text += intent_line(node.text("name"), device.text("id") + " ", device, !holds_replicas(device), style);
  }
  return text;
}

std::string problem_text(const Fields& node, const Style& style) {
  return node.has("problem") ? paragraph("! " + node.text("name") + "  ", node.text("problem"), style) : std::string();
}

std::string pairs_text(const json::object& labels) {
  std::string text;
  for (const auto& [key, value] : labels) text += (text.empty() ? "" : ", ") + printable(key) + "=" + value_text(value);
  return text;
}

}  // namespace

std::string status_text(const json::object& answer, const Style& style) {
  const Fields all(answer), project = all.in("project"), nodes = all.in("nodes"), devices = all.in("devices");
  std::string text = project.has("name") ? project.text("name") + ", version " + project.count("version")
                                         : std::string("no project is applied yet");
  text +=
      "; server " + all.text("server") + ", berth " + all.text("version") + ", up " + all.age_since("started_at_ms");
  text = paragraph("", text, style);
  const auto counts = [](const Fields& of, std::initializer_list<std::pair<const char*, const char*>> kinds) {
    std::string text;
    for (const auto& [key, word] : kinds) {
      if (of.number(key).value_or(0) > 0) text += (text.empty() ? ": " : ", ") + of.count(key) + " " + word;
    }
    return text;
  };
  text += paragraph("nodes    ",
                    nodes.count("total") + counts(nodes, {{"healthy", "healthy"},
                                                          {"suspect", "suspect"},
                                                          {"lost", "lost"},
                                                          {"awaited", "unknown"},
                                                          {"ignoring", "ignoring this server"},
                                                          {"cordoned", "cordoned or draining"}}),
                    style);
  const double gpus = devices.number("gpus").value_or(0), others = devices.number("total").value_or(0) - gpus;
  text += paragraph("GPUs     ",
                    (gpus > 0 ? devices.count("gpus") : "none") +
                        counts(devices, {{"free", "free"}, {"in_use", "in use"}, {"unavailable", "unavailable"}}) +
                        (devices.number("memory_bytes_total").value_or(0) > 0
                             ? "; " + share_text(devices, "memory_bytes_free", "memory_bytes_total") + " free"
                             : "") +
                        (others > 0 ? "; " + counted(static_cast<std::size_t>(others), "other device") : ""),
                    style);
  if (all.has("problem"))
    text += "\n" + paragraph("! ",
                             "the server cannot decide anything now, and this state may be out of date: " +
                                 all.text("problem"),
                             style);
  for (const json::value& value : all.list("warnings")) {
    const Fields warning(value);
    text += "\n" + paragraph("! ", warning.text("subject") + ": " + warning.text("text"), style);
  }
  std::size_t unhealthy = 0;
  for (const json::value& value : all.list("unavailable_nodes")) {
    const Fields node(value);
    if (++unhealthy > shown_max) continue;
    text += health_line(node.text("node"), node, style);
    if (node.raw("intent") != "in_service")
      text += intent_line(node.text("node"), "", node, node.number("replicas") == 0.0, style);
  }
  for (const json::value& value : all.list("unhealthy_devices")) {
    const Fields device(value);
    if (++unhealthy <= shown_max) text += unhealthy_line(device.text("node"), device.text("device"), device, style);
  }
  for (const json::value& value : all.list("cordoned_devices")) {
    const Fields device(value);
    if (++unhealthy <= shown_max)
      text += intent_line(device.text("node"), device.text("device") + " ", device, device.number("replicas") == 0.0,
                          style);
  }
  if (unhealthy > shown_max) text += "  and " + std::to_string(unhealthy - shown_max) + " more\n";
  if (!all.list("pending").empty()) text += "\n" + pending_text(all.list("pending"), style);
  if (all.list("deployments").empty()) return text + "\nnothing is deployed; berth apply FILE deploys a project\n";
  // The pending replicas have already been explained.
  json::array deployments = all.list("deployments");
  for (json::value& deployment : deployments) {
    const auto is_its = [&](const json::value& entry) {
      return Fields(entry).raw("deployment") == Fields(deployment).raw("name");
    };
    if (std::any_of(all.list("pending").begin(), all.list("pending").end(), is_its) && deployment.is_object())
      deployment.get_object().erase("reason");
  }
  return text + "\n" + deployment_table(deployments, style);
}

std::string nodes_text(const json::object& answer, const Style& style) {
  const Fields fields(answer);
  const json::array& nodes = fields.list("nodes");
  if (nodes.empty()) return "no node has joined; berth token add join makes a token for berth agent --join\n";
  const auto gpus = [](const Fields& node) {
    std::size_t total = 0, free = 0;
    for (const json::value& value : node.list("devices")) {
      const Fields device(value);
      total += is_gpu(device) ? 1 : 0;
      free += is_gpu(device) && is_free(device, node) ? 1 : 0;
    }
    return std::to_string(free) + " of " + std::to_string(total);
  };
  std::string unhealthy;
  for (const json::value& node : nodes) {
    unhealthy += problem_text(Fields(node), style);
    unhealthy += health_line(Fields(node).text("name"), Fields(node), style);
    if (Fields(node).raw("intent") != "in_service" && Fields(node).has("intent_by"))
      unhealthy +=
          intent_line(Fields(node).text("name"), "", Fields(node), Fields(node).list("replicas").empty(), style);
    unhealthy += unhealthy_text(Fields(node), style);
  }
  return table_text(nodes,
                    {{"NODE", text_cell("name"), 8},
                     {"HEALTH", state_cell("health", style)},
                     {"INTENT", state_cell("intent", style)},
                     {">FREE GPUS", gpus},
                     {">REPLICAS", [](const Fields& node) { return std::to_string(node.list("replicas").size()); }},
                     {">CPUS", count_cell("cpus"), 0, 2},
                     {">MEMORY", bytes_cell("memory_bytes"), 0, 1},
                     {">REPORT", [](const Fields& node) { return node.age("last_report_age_s"); }},
                     {"VERSION", text_cell("version"), 0, 3}},
                    style) +
         (unhealthy.empty() ? "" : "\n" + unhealthy);
}

std::string fleet_devices_text(const json::object& answer, const Style& style) {
  const Fields all(answer);
  json::array nodes = all.list("nodes"), rows;
  if (all.has("node")) nodes.push_back(all.in("node").object());
  for (const json::value& node : nodes) {
    for (const json::value& device : Fields(node).list("devices")) {
      if (!device.is_object()) continue;
      rows.push_back(device);
      rows.back().get_object()["node"] = Fields(node).raw("name");
    }
  }
  return rows.empty() ? "no node has reported a device\n" : device_table(rows, true, style);
}

std::string node_text(const json::object& answer, const Style& style) {
  const Fields node = Fields(answer).in("node");
  std::string text = node.text("name") + ": " + state_cell("health", style)(node) + ", " +
                     state_cell("intent", style)(node) + intent_reason(node) + "; last report " +
                     (node.has("last_report_age_s") ? node.age("last_report_age_s") + " ago" : "-") + "\n";
  text += "berth " + node.text("version") + ", " + node.count("cpus") + " CPUs, " + node.bytes("memory_bytes") +
          " of memory" + (node.is("egress") ? ", may call external providers" : "") + "\n";
  if (const std::string labels = pairs_text(node.in("labels").object()); !labels.empty())
    text += paragraph("labels ", labels, style);
  std::string taints;
  for (const json::value& taint : node.list("taints")) {
    if (taint.is_string()) taints += (taints.empty() ? "" : ", ") + printable(std::string_view(taint.get_string()));
  }
  if (!taints.empty()) text += paragraph("taints ", taints, style);
  if (const double offset = node.number("clock_offset_s").value_or(0); offset > 1 || offset < -1)
    text += "its clock is " + age_text(std::chrono::seconds(static_cast<std::int64_t>(std::abs(offset)))) +
            (offset > 0 ? " ahead of" : " behind") + " the server's\n";
  text += health_line(node.text("name"), node, style) + problem_text(node, style) + unhealthy_text(node, style);
  if (node.raw("health") == "lost" && !node.list("devices").empty())
    text += "its devices were last seen " +
            (node.has("last_report_age_s") ? node.age("last_report_age_s") + " ago" : "before this server started") +
            "\n";
  if (!node.list("devices").empty()) text += "\n" + device_table(node.list("devices"), false, style);
  if (!node.list("replicas").empty()) text += "\n" + replica_table(node.list("replicas"), style);
  return text;
}

std::string deployments_text(const json::object& answer, const Style& style) {
  const Fields fields(answer);
  const json::array& deployments = fields.list("deployments");
  return deployments.empty() ? "nothing is deployed; berth apply FILE deploys a project\n"
                             : deployment_table(deployments, style);
}

std::string rollout_text(const json::object& answer, const Style& style) {
  const Fields deployment = Fields(answer).in("deployment"), rollout = deployment.in("rollout");
  std::string text;
  if (Fields(answer).has("changed") && !Fields(answer).is("changed"))
    text = "nothing to do: " + deployment.text("name") + " is already as requested\n";
  text += paragraph(deployment.text("name") + ": ",
                    state_cell("state", style)(deployment) +
                        (deployment.has("reason") && !rollout.is("paused") ? "; " + deployment.text("reason") : ""),
                    style);
  text += "revision " + deployment.count("revision") + ": " + deployment.count("ready") + " of " +
          deployment.count("replicas") + " ready, " + deployment.count("updated") + " updated\n";
  if (rollout.is("paused"))
    text += paragraph("its rollout is " + state_prefix("paused", rollout.raw("reason")),
                      rollout.text("reason") + " (berth rollout resume|undo)", style);
  text += "rollout: surge " + rollout.count("surge") + ", unavailable " + rollout.count("unavailable") + "; " +
          counted(static_cast<std::size_t>(std::max(0.0, rollout.number("undo_revisions").value_or(0))), "undo step") +
          "\n";
  for (const json::value& value : rollout.list("earlier")) {
    const std::string fields = field_names_text(Fields(value).list("fields"));
    text +=
        paragraph("  revision " + Fields(value).count("revision") + " ",
                  fields.empty() ? "is the same as " + deployment.count("revision") : "differed in " + fields, style);
  }
  return text;
}

std::string deployment_text(const json::object& answer, const Style& style) {
  const json::object& spec = Fields(answer).in("deployment").in("spec").object();
  return rollout_text(answer, style) + section("spec", spec_text(spec, style), style);
}

std::string replicas_text(const json::object& answer, const Style& style) {
  const Fields all(answer);
  std::string text = all.list("replicas").empty() ? "" : replica_table(all.list("replicas"), style);
  const std::string pending = pending_text(all.list("pending"), style);
  if (text.empty() && pending.empty()) return "there are no replicas\n";
  return text + (text.empty() || pending.empty() ? "" : "\n") + pending;
}

std::string replica_text(const json::object& answer, const Style& style) {
  const Fields all(answer), why = all.in("why");
  // "chat/0 is ready on gpu-1" already contains the name.
  const bool is_named = why.text("text").starts_with(all.text("name") + " ");
  std::string text = paragraph(is_named ? "" : all.text("name") + ": ", why.text("text"), style);
  std::string funnel;
  for (const json::value& value : why.list("funnel")) {
    const Fields stage(value);
    funnel += (funnel.empty() ? "" : " -> ") + stage.count("left") + " " + stage.text("name");
  }
  if (!funnel.empty()) text += paragraph("", funnel, style);
  if (!all.list("incarnations").empty()) text += "\n" + replica_table(all.list("incarnations"), style);
  if (!why.list("nodes").empty())
    text += "\n" + table_text(why.list("nodes"),
                              {{"NODE", text_cell("node"), 8},
                               {"FITS", [](const Fields& row) { return std::string(row.is("fits") ? "yes" : "no"); }},
                               {"", [](const Fields& row) { return with_short_ids(row.text("text")); }, 20}},
                              style);
  std::string changes;
  for (const json::value& value : why.list("changes")) changes += paragraph("- ", change_text(Fields(value)), style);
  text += section("what would let it fit", changes, style);
  return text + section("events", events_text(answer, style), style);
}

std::string events_text(const json::object& answer, const Style& style) {
  const auto padded = [](std::string word, std::size_t width) {
    word.resize(std::max(word.size(), width), ' ');
    return word + "  ";
  };
  const json::array& events = Fields(answer).list("events");
  // Lines that are printed one by one have a common width too, and one long name does not widen all lines.
  constexpr std::size_t subject_least = 16, subject_most = 24;
  std::size_t subject = subject_least;
  for (const json::value& event : events)
    subject = std::max(subject, std::min(subject_most, shown_width(Fields(event).text("subject"))));
  std::string text;
  for (const json::value& value : events) {
    const Fields event(value);
    text += paint(style, Colour::dim, event.time("at_ms")) + "  " + padded(event.text("kind"), 10) +
            padded(event.text("subject"), subject) + with_short_ids(event.text("text")) +
            paint(style, Colour::dim, " (" + event.text("actor") + ")") + "\n";
  }
  return text;
}

namespace {

// What the token is for: a node, a deployment and its caller, a gateway, or a person.
std::string token_use(const Fields& row) {
  if (row.has("node")) return "node " + row.text("node");
  if (row.has("deployment")) return row.text("deployment") + (row.has("name") ? ", by " + row.text("name") : "");
  if (row.text("role") == "gateway") return "gateway " + row.text("name");
  if (row.has("gateway")) return "a gateway";
  return row.has("name") ? row.text("name") : "-";
}

}  // namespace

std::string tokens_text(const json::object& answer, const Style& style) {
  const Fields fields(answer);
  const json::array& tokens = fields.list("tokens");
  if (tokens.empty()) return "there are no tokens; berth token add ROLE creates one\n";
  return table_text(tokens,
                    {{"ID", text_cell("id")},
                     {"ROLE", text_cell("role")},
                     {"FOR", token_use, 8},
                     {"MADE BY", text_cell("made_by"), 8, 1},
                     {"MADE (UTC)", [](const Fields& row) { return row.time("made_at_ms"); }, 0, 2},
                     {"EXPIRES (UTC)", [](const Fields& row) { return row.time("expires_at_ms"); }}},
                    style);
}

}  // namespace berth::cli
