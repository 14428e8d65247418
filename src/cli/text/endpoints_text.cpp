#include "cli/text/endpoints_text.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <functional>

#include "cli/text/answer_fields.hpp"
#include "cli/text/answer_table.hpp"

namespace berth::cli {

namespace json = boost::json;

namespace {

// A cell about the traffic of a deployment or a replica.
Cell traffic_cell(std::string (Fields::*form)(std::string_view) const, std::string key) {
  return [form, key = std::move(key)](const Fields& row) { return (row.in("traffic").*form)(key); };
}

std::string deployments_part(const json::array& deployments, const Style& style) {
  json::array rows;
  for (const json::value& deployment : deployments)
    if (Fields(deployment).has("traffic")) rows.push_back(deployment);
  if (rows.empty()) return {};
  return table_text(rows,
                    {{"DEPLOYMENT", text_cell("name"), 8},
                     {">REQ/S", traffic_cell(&Fields::rate, "requests_per_s")},
                     {">REJECT/S", traffic_cell(&Fields::rate, "rejected_per_s"), 0, 4},
                     {">FAIL/S", traffic_cell(&Fields::rate, "failed_per_s"), 0, 5},
                     {">WAITING", traffic_cell(&Fields::count, "waiting")},
                     {">IN FLIGHT", traffic_cell(&Fields::count, "in_flight"), 0, 3},
                     {">FIRST P50", traffic_cell(&Fields::seconds, "first_byte_s_p50"), 0, 2},
                     {">FIRST P99", traffic_cell(&Fields::seconds, "first_byte_s_p99")},
                     {">TOTAL P50", traffic_cell(&Fields::seconds, "total_s_p50"), 0, 1},
                     {">TOTAL P99", traffic_cell(&Fields::seconds, "total_s_p99")}},
                    style) +
         "\n";
}

// Shown only if there are keys; requests without a key are counted in the rows of the deployments.
std::string callers_part(const json::array& callers, const Style& style) {
  const bool has_keys = std::any_of(callers.begin(), callers.end(),
                                    [](const json::value& gateway) { return Fields(gateway).text("id") != "local"; });
  if (!has_keys) return {};
  return "\n" + table_text(callers,
                           {{"CALLER", text_cell("id"), 8},
                            {"NAME", text_cell("name"), 8},
                            {"DEPLOYMENT", text_cell("deployment"), 8},
                            {">REQ/S", traffic_cell(&Fields::rate, "requests_per_s")},
                            {">REJECT/S", traffic_cell(&Fields::rate, "rejected_per_s"), 0, 3},
                            {">FAIL/S", traffic_cell(&Fields::rate, "failed_per_s"), 0, 5},
                            {">RETRY/S", traffic_cell(&Fields::rate, "retried_per_s"), 0, 7},
                            {">WAITING", traffic_cell(&Fields::count, "waiting")},
                            {">IN FLIGHT", traffic_cell(&Fields::count, "in_flight"), 0, 4},
                            {">FIRST P50", traffic_cell(&Fields::seconds, "first_byte_s_p50"), 0, 2},
                            {">FIRST P99", traffic_cell(&Fields::seconds, "first_byte_s_p99")},
                            {">TOTAL P50", traffic_cell(&Fields::seconds, "total_s_p50"), 0, 1},
                            {">TOTAL P99", traffic_cell(&Fields::seconds, "total_s_p99"), 0, 6}},
                           style);
}

// A gateway may have ejected a replica that accepts requests.
std::string state_of(const Fields& row, const Style& style) {
  const bool is_ejected = !row.in("traffic").list("ejected_by").empty();
  return is_ejected ? paint(style, Colour::red, "ejected") : state_cell("state", style)(row);
}

}  // namespace

std::string endpoints_text(const json::object& answer, const Style& style) {
  const Fields fields(answer);
  std::string out;
  for (const json::value& entry : fields.list("gateways")) {
    const Fields gateway(entry);
    const std::string address = gateway.text("address");
    out += "gateway " + gateway.text("name") + " at " +
           (address.starts_with(':') ? "port " + address.substr(1) + " of the server's machine" : address);
    const bool is_silent = gateway.has("reports") && !gateway.is("reports");
    out += is_silent ? " does not report: it may not be running; its log says why\n" : "\n";
  }
  if (out.empty())
    out =
        "there is no gateway; start one with berth gateway, or check the log of berth serve to see why there is none\n";
  for (const json::value& warning : fields.list("warnings"))
    out += paragraph("! ", Fields(warning).text("subject") + ": " + Fields(warning).text("text"), style);
  json::array rows;
  for (const json::value& entry : fields.list("deployments")) {
    const Fields deployment(entry);
    for (const json::value& endpoint : deployment.list("endpoints")) rows.push_back(endpoint);
  }
  if (rows.empty()) return out + "no replica accepts requests: its command must listen on {port} or {socket}\n";
  std::vector<TableColumn> columns{{"REPLICA", text_cell("name"), 8},
                                   {"STATE", [style](const Fields& row) { return state_of(row, style); }},
                                   {"NODE", text_cell("node"), 8},
                                   {">MAX", count_cell("max_concurrent")},
                                   {">IN FLIGHT", traffic_cell(&Fields::count, "in_flight"), 0, 3},
                                   {">REQ/S", traffic_cell(&Fields::rate, "requests_per_s"), 0, 2},
                                   {">FIRST P99", traffic_cell(&Fields::seconds, "first_byte_s_p99"), 0, 1}};
  const bool has_direct =
      std::any_of(rows.begin(), rows.end(), [](const json::value& row) { return Fields(row).has("address"); });
  if (has_direct) columns.insert(columns.begin() + 3, {"ADDRESS", text_cell("address")});
  return out + deployments_part(fields.list("deployments"), style) + table_text(rows, columns, style) +
         callers_part(fields.list("callers"), style);
}

}  // namespace berth::cli
