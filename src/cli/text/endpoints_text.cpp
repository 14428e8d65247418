#include "cli/text/endpoints_text.hpp"

#include <boost/json.hpp>

#include "cli/text/answer_fields.hpp"
#include "cli/text/answer_table.hpp"

namespace berth::cli {

namespace json = boost::json;

std::string endpoints_text(const json::object& answer, const Style& style) {
  const Fields fields(answer);
  std::string out;
  for (const json::value& one : fields.list("gateways")) {
    const Fields gateway(one);
    out += "gateway " + gateway.text("name") + " at " + gateway.text("address") + "\n";
  }
  if (out.empty()) out = "there is no gateway; berth serve starts one, and so does berth gateway\n";
  json::array rows;
  for (const json::value& one : fields.list("deployments")) {
    const Fields deployment(one);
    for (const json::value& endpoint : deployment.list("endpoints")) rows.push_back(endpoint);
  }
  if (rows.empty()) return out + "no replica takes requests: its command must listen on {port} or {socket}\n";
  return out + table_text(rows,
                          {{"REPLICA", text_cell("name"), 8},
                           {"STATE", state_cell("state", style)},
                           {"NODE", text_cell("node"), 8},
                           {"MAX", count_cell("max_concurrent")}},
                          style);
}

}  // namespace berth::cli
