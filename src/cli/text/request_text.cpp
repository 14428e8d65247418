#include "cli/text/request_text.hpp"

#include <algorithm>
#include <boost/json.hpp>

#include "cli/text/answer_fields.hpp"
#include "cli/text/answer_table.hpp"

namespace berth::cli {

namespace json = boost::json;

namespace {

// The replica of the last attempt.
std::string last_replica(const Fields& request) {
  const json::array& attempts = request.list("attempts");
  return attempts.empty() ? "" : Fields(attempts.back()).text("replica");
}

std::string ending_of(const Fields& request) {
  const std::string outcome = request.raw("outcome"), reason = request.word("reason"), status = request.count("status"),
                    replica = last_replica(request);
  if (outcome == "answered") return "was answered with " + status + (replica.empty() ? "" : " by " + replica);
  if (outcome == "rejected")
    return "was rejected with " + status + " (" + reason + ") before a replica began to work on it";
  if (outcome == "abandoned")
    return "ended because the client closed its connection" +
           (replica.empty() ? "" : " while " + replica + " worked on it");
  std::string text = "failed";
  if (!replica.empty()) text += " at " + replica;
  if (request.has("reason")) text += ": " + reason;
  return text + (request.has("status") ? "; the client got " + status : "");
}

std::string times_of(const Fields& request) {
  std::string text = "it took " + request.microseconds("total_us");
  if (request.number("waited_us").value_or(0) > 0)
    text += ", of which it waited " + request.microseconds("waited_us") + " for a replica";
  if (request.has("first_byte_us")) text += "; the answer began after " + request.microseconds("first_byte_us");
  return text;
}

std::string origin_of(const Fields& request) {
  std::string text = "the gateway " + request.text("gateway") + " received it at " + request.time("at_ms") + " UTC";
  const std::string caller = request.raw("caller");
  text += caller.empty()      ? ", without a valid key"
          : caller == "local" ? ", without a caller's key"
                              : ", from caller " + request.text("caller");
  return text + (request.has("deployment") ? ", for " + request.text("deployment") : "");
}

std::string candidates_part(const Fields& of, const Style& style) {
  if (of.list("candidates").empty()) return {};
  return section("choice by " + of.text("policy"),
                 table_text(of.list("candidates"),
                            {{"REPLICA", text_cell("replica"), 8},
                             {"VERDICT",
                              [](const Fields& row) {
                                const std::string word = row.word("verdict");
                                return word == "runner up" ? "runner-up" : word;
                              }},
                             {">IN FLIGHT", count_cell("in_flight")},
                             {">MAX", count_cell("max_concurrent")}},
                            style),
                 style);
}

std::string unconnected_part(const Fields& request, const Style& style) {
  const json::array& candidates = request.list("candidates");
  const bool is_any = std::any_of(candidates.begin(), candidates.end(), [](const json::value& candidate) {
    return Fields(candidate).raw("verdict") == "not_connected";
  });
  if (!is_any) return {};
  return "\n" + paragraph("",
                          "not connected: the node of the replica had no connection to the gateway " +
                              request.text("gateway") +
                              "; berth status shows which nodes are not connected now and what to do",
                          style);
}

std::string attempts_part(const Fields& request, const Style& style) {
  const json::array& attempts = request.list("attempts");
  // A single successful attempt is already in the first sentence.
  if (attempts.empty() || (attempts.size() == 1 && request.raw("outcome") == "answered")) return {};
  return section(
      "replicas tried",
      table_text(
          attempts,
          {{"REPLICA", text_cell("replica"), 8},
           {"NODE", text_cell("node"), 8},
           {"OUTCOME",
            [](const Fields& row) { return row.raw("outcome") == "rejected" ? "refused" : row.word("outcome"); }},
           {">TOOK", [](const Fields& row) { return row.microseconds("took_us"); }},
           {"REASON", text_cell("reason"), 20}},
          style),
      style);
}

}  // namespace

std::string request_text(const json::object& answer, const Style& style) {
  std::string out;
  for (const json::value& entry : Fields(answer).list("requests")) {
    const Fields request(entry);
    out += (out.empty() ? "" : "\n") + paragraph("", "request " + request.text("id") + " " + ending_of(request), style);
    out += paragraph("", times_of(request), style) + paragraph("", origin_of(request), style);
    out += attempts_part(request, style) + candidates_part(request, style) + unconnected_part(request, style);
  }
  return out;
}

std::string route_text(const json::object& answer, const Style& style) {
  const Fields route = Fields(answer).in("route");
  std::string out = paragraph("", route.text("text"), style);
  if (route.has("matched_by")) {
    const std::string by = route.raw("matched_by");
    out += paragraph("", "the deployment was found by its " + (by == "deployment" ? "name" : by), style);
  }
  out += candidates_part(route, style);
  if (route.has("deployment") && route.list("gateways").empty())
    out += "\n" + paragraph("", "no gateway has reported within 5 s, so the load of the replicas is not known", style);
  return out;
}

}  // namespace berth::cli
