// What the API, the store and agents read as JSON. What is accepted is written and read again.
#include <cstdlib>
#include <string_view>

#include "fleet_format/fleet_json.hpp"
#include "fleet_format/plan_json.hpp"
#include "fleet_format/spec_json.hpp"
#include "format/inventory_json.hpp"
#include "format/json_reading.hpp"
#include "format/record.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace berth;
  using namespace berth::format;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static_cast<void>(read_project_json(text, "body"));
  static_cast<void>(read_fleet_json(text, "body"));
  static_cast<void>(read_plan(text, "body", "c"));
  static_cast<void>(read_record(text, "body"));
  static_cast<void>(read_document(text, "body", wanted_of));
  static_cast<void>(read_document(text, "body", assigned_of));
  static_cast<void>(read_document(text, "body", node_report_of));
  static_cast<void>(read_document(text, "body", node_orders_of));
  static_cast<void>(read_document(text, "body", event_of));
  static_cast<void>(read_document(text, "body", credential_of));
  static_cast<void>(read_document(text, "body", node_record_of));
  return 0;
}
