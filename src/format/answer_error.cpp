#include "format/answer_error.hpp"

#include "format/json_reading.hpp"

namespace berth::format {

namespace json = boost::json;

std::optional<AnswerError> answer_error(std::string_view body) {
  const Result<json::value> parsed = parse_json(body, "answer", "");
  const json::object* const object = parsed ? parsed->if_object() : nullptr;
  const json::value* const error = object ? object->if_contains("error") : nullptr;
  const json::object* const about = error ? error->if_object() : nullptr;
  const auto word = [&](std::string_view key) {
    const json::value* const value = about ? about->if_contains(key) : nullptr;
    return value && value->is_string() ? std::string(value->get_string()) : std::string();
  };
  AnswerError read{word("code"), word("message"), word("advice")};
  return read.message.empty() ? std::nullopt : std::optional(std::move(read));
}

}  // namespace berth::format
