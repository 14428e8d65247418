// docs/reference/openapi.json has the schemas that the tables of described nouns give. After a change of a table:
// BERTH_WRITE_OPENAPI=1 fleet_format_test writes them there.
#include "fleet_format/described_schema.hpp"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace berth::format {
namespace {

namespace json = boost::json;

// In the style of that file: a space after each comma and colon.
std::string spaced(const json::value& value) {
  if (!value.is_object() && !value.is_array()) return json::serialize(value);
  std::string out;
  const auto add = [&](const std::string& text) { out += (out.empty() ? "" : ", ") + text; };
  if (value.is_array()) {
    for (const json::value& entry : value.get_array()) add(spaced(entry));
    return "[" + out + "]";
  }
  for (const auto& [name, entry] : value.get_object()) add(json::serialize(json::string(name)) + ": " + spaced(entry));
  return "{" + out + "}";
}

std::string block(const json::object& schema) {
  std::string out;
  for (const auto& [key, value] : schema) {
    out += (out.empty() ? "" : ",\n") + ("        \"" + std::string(key) + "\": ");
    if (key != "properties") {
      out += spaced(value);
      continue;
    }
    std::string properties;
    for (const auto& [name, property] : value.as_object())
      properties +=
          (properties.empty() ? "" : ",\n") + ("          \"" + std::string(name) + "\": " + spaced(property));
    out += "{\n" + properties + "\n        }";
  }
  return "{\n" + out + "\n      }";
}

TEST(DescribedSchema, IsInTheDocumentOfTheApi) {
  const std::string path = std::string(BERTH_SOURCE_DIR) + "/docs/reference/openapi.json";
  std::stringstream read;
  read << std::ifstream(path).rdbuf();
  std::string text = read.str();
  const json::value document = json::parse(text);
  for (const auto& [name, derived] : described_schemas()) {
    const json::object& written = document.at("components").at("schemas").at(name).as_object();
    json::object wanted{{"type", "object"}};
    if (written.contains("description")) wanted["description"] = written.at("description");
    for (const auto& [key, value] : derived.as_object()) wanted[key] = value;
    if (std::getenv("BERTH_WRITE_OPENAPI")) {
      const std::string head = "\n      \"" + std::string(name) + "\": ";
      const std::size_t begin = text.find(head) + head.size(), end = text.find("\n      }", begin) + 8;
      text.replace(begin, end - begin, block(wanted));
    } else {
      EXPECT_EQ(written, wanted) << "run BERTH_WRITE_OPENAPI=1 fleet_format_test";
    }
  }
  if (std::getenv("BERTH_WRITE_OPENAPI")) std::ofstream(path) << text;
}

}  // namespace
}  // namespace berth::format
