// The error in the body of an answer of the API: {"schema":1,"error":{"code":..,"message":..,"advice":..}}.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace berth::format {

struct AnswerError {
  std::string code;  // a word of the API
  std::string message;
  std::string advice;  // empty: none
};
// Returns nullopt if the body is not such an error.
std::optional<AnswerError> answer_error(std::string_view body);

}  // namespace berth::format
