#include "machine/job_order.hpp"

#include <boost/json.hpp>
#include <limits>

#include "format/json_reading.hpp"
#include "format/record.hpp"

namespace berth::machine {
namespace {

namespace json = boost::json;
using namespace format;

const std::string here = "order";

template <class Texts>
json::array to_array(const Texts& texts) {
  return json::array(texts.begin(), texts.end());
}
json::object to_object(const std::map<std::string, std::string>& texts) {
  json::object object;
  for (const auto& [name, value] : texts) object[name] = value;
  return object;
}

std::uint64_t number(const json::value& value, const std::string& where) {
  return number_of(value, std::numeric_limits<std::int64_t>::max(), where);
}
Duration duration_of(const json::value& value, const std::string& where) {
  return std::chrono::nanoseconds(number(value, where));
}
void put(json::object& object, std::string_view key, const std::optional<Duration>& value) {
  if (value) object[key] = std::chrono::nanoseconds(*value).count();
}

json::object to_json(const DeviceRequest& request) {
  json::object object{{"requirements", requirements_to_json(request.requirements)},
                      {"count", request.count},
                      {"policy", request.policy},
                      {"only", to_array(request.only)},
                      {"avoid", to_array(request.avoid)},
                      {"prefer", to_array(request.prefer)},
                      {"near", request.near},
                      {"simulated", request.backends.simulated_file},
                      {"host_devices", request.backends.host_devices},
                      {"listing_starts_driver", request.backends.listing_starts_driver}};
  if (request.backend) object["backend"] = *request.backend;
  put(object, "load_lock", request.load_lock);
  json::array partitions;
  for (const PartitionRequest& partition : request.backends.partitions)
    partitions.push_back(json::object{{"device", partition.device},
                                      {"units", json::array(partition.units.begin(), partition.units.end())}});
  object["partitions"] = std::move(partitions);
  return object;
}

DeviceRequest devices_of(const json::value& value) {
  const json::object& object = object_of(value, here);
  const auto texts = [&](const char* key) { return texts_of(member(object, key, here), key); };
  DeviceRequest request;
  request.requirements = requirements_of(member(object, "requirements", here), "requirements");
  request.count = number(member(object, "count", here), "count");
  request.policy = text_of(member(object, "policy", here), "policy");
  request.backend = optional_member(object, "backend", here, text_of);
  request.only = texts("only");
  request.avoid = texts("avoid");
  request.prefer = texts("prefer");
  request.near = text_of(member(object, "near", here), "near");
  request.load_lock = optional_member(object, "load_lock", here, duration_of);
  request.backends.simulated_file = text_of(member(object, "simulated", here), "simulated");
  request.backends.host_devices = static_cast<unsigned>(number(member(object, "host_devices", here), "host_devices"));
  request.backends.listing_starts_driver = bool_of(member(object, "listing_starts_driver", here), here);
  for (const json::value& entry : array_of(member(object, "partitions", here), "partitions")) {
    const json::object& partition = object_of(entry, "partitions");
    PartitionRequest cut{text_of(member(partition, "device", here), "device"), {}};
    for (const json::value& units : array_of(member(partition, "units", here), "units"))
      cut.units.push_back(static_cast<std::uint32_t>(number(units, "units")));
    request.backends.partitions.push_back(std::move(cut));
  }
  return request;
}

JobOrder order_of(const json::value& value) {
  const json::object& object = object_of(value, here);
  const auto text = [&](const char* key) { return text_of(member(object, key, here), key); };
  const auto texts = [&](const char* key) { return texts_of(member(object, key, here), key); };
  JobOrder order;
  order.name = text("name");
  order.command = texts("command");
  order.environment = labels_of(member(object, "environment", here), "environment");
  for (std::string& name : texts("removed")) order.removed.insert(std::move(name));
  order.folder = text("folder");
  order.user = text("user");
  order.devices = devices_of(member(object, "devices", here));
  order.wait = optional_member(object, "wait", here, duration_of);
  order.limit = static_cast<Limit>(number_of(member(object, "limit", here), static_cast<int>(Limit::mps), "limit"));
  order.host.memory_bytes_max = optional_member(object, "host_memory_bytes", here, number);
  order.host.cpus_max = optional_member(object, "cpus", here, real_of);
  order.host.leaves_service = bool_of(member(object, "leaves_service", here), here);
  if (const auto asked = optional_member(object, "asked", here, duration_of)) order.asked = TimePoint(*asked);
  order.options = optional_member(object, "options", here, texts_of).value_or(std::vector<std::string>());
  order.after = texts("after");
  order.after_any = optional_member(object, "after_any", here, texts_of).value_or(std::vector<std::string>());
  order.begin_us = optional_member(object, "begin_us", here, number);
  order.time = optional_member(object, "time", here, duration_of);
  order.retries = number(member(object, "retries", here), "retries");
  order.restarts_on_fault = bool_of(member(object, "restarts_on_fault", here), here);
  order.stop_grace = duration_of(member(object, "stop_grace", here), "stop_grace");
  order.stop_unless_renewed = optional_member(object, "stop_unless_renewed", here, duration_of);
  order.quiet = bool_of(member(object, "quiet", here), here);
  order.output = optional_member(object, "output", here, text_of).value_or("");
  order.notify = optional_member(object, "notify", here, text_of).value_or("");
  order.by_hand = optional_member(object, "by_hand", here, bool_of).value_or(false);
  if (order.command.empty()) throw JsonError{"it has no command"};
  return order;
}

}  // namespace

// Labels are left out: the supervisor does not need them.
std::string to_text(const JobOrder& order) {
  json::object object{{"name", order.name},
                      {"command", to_array(order.command)},
                      {"environment", to_object(order.environment)},
                      {"removed", to_array(order.removed)},
                      {"folder", order.folder},
                      {"user", order.user},
                      {"devices", to_json(order.devices)},
                      {"limit", static_cast<int>(order.limit)},
                      {"options", to_array(order.options)},
                      {"after", to_array(order.after)},
                      {"after_any", to_array(order.after_any)},
                      {"retries", order.retries},
                      {"restarts_on_fault", order.restarts_on_fault},
                      {"leaves_service", order.host.leaves_service},
                      {"quiet", order.quiet},
                      {"output", order.output},
                      {"notify", order.notify},
                      {"by_hand", order.by_hand}};
  if (order.asked) put(object, "asked", order.asked->time_since_epoch());
  put(object, "wait", order.wait);
  put(object, "time", order.time);
  if (order.begin_us) object["begin_us"] = *order.begin_us;
  put(object, "stop_grace", order.stop_grace);
  put(object, "stop_unless_renewed", order.stop_unless_renewed);
  if (order.host.memory_bytes_max) object["host_memory_bytes"] = *order.host.memory_bytes_max;
  if (order.host.cpus_max) object["cpus"] = *order.host.cpus_max;
  return json::serialize(object);
}

Result<JobOrder> read_order(std::string_view text) {
  const auto wrong = [](const std::string& what) {
    return Error{ErrorCode::invalid_argument, "the job request is not valid: " + what, "start jobs with berth run -d"};
  };
  // Arguments, paths and variables may contain any bytes.
  json::parse_options any_bytes;
  any_bytes.allow_invalid_utf8 = true;
  json::error_code failed;
  const json::value value = json::parse({text.data(), text.size()}, failed, {}, any_bytes);
  if (failed) return wrong(failed.message());
  try {
    return order_of(value);
  } catch (const JsonError& error) {
    return wrong(error.what);
  }
}

}  // namespace berth::machine
