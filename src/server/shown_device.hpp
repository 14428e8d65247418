// A device as its node shows it: JSON that readers get as it came, and the values of it that the server goes by, read
// once. For display and sums only: placement goes by the inventory of the report. An agent of another version may
// leave out or add anything; a value that is absent or of another type is not said.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <optional>
#include <string>
#include <vector>

#include "berth/device_view.hpp"

namespace berth::server {

struct ShownDevice {
  boost::json::object json;      // has "intent" and "holders" in any case
  std::string id;                // empty: not said
  bool is_accelerator = false;   // neither a processor nor what stands in for an accelerator
  bool is_healthy = false;       // says so
  bool has_error = false;        // its driver does not answer as it should
  bool is_held = false;          // somebody uses it
  std::optional<Intent> intent;  // of the ledger of its machine; absent: a word that is not known here
  std::optional<double> memory_bytes_total, memory_bytes_free, memory_bytes_promised, utilisation, celsius;
};

// What is no object is left out.
std::vector<ShownDevice> shown_devices_of(const boost::json::array& devices);

}  // namespace berth::server
