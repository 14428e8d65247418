#include "deployment/command.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace berth::deployment {
namespace {

constexpr std::array<std::string_view, 8> words{"port",         "socket",          "address", "gpus",
                                                "memory_bytes", "memory_fraction", "name",    "replica"};

std::string value_of(std::string_view word, const Placeholders& values) {
  if (word == "port") return std::to_string(values.port);
  if (word == "socket") return values.socket;
  if (word == "address") return values.address;
  if (word == "gpus") return std::to_string(values.gpus);
  if (word == "memory_bytes") return std::to_string(values.memory_bytes);
  if (word == "name") return values.name;
  if (word == "replica") return std::to_string(values.replica);
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", std::floor(values.memory_fraction * 10000) / 10000);
  return text;
}

// Calls text(part) and placeholder(word) for the parts of an argument, in their order.
template <class Text, class Placeholder>
void parse(std::string_view argument, Text&& text, Placeholder&& placeholder) {
  for (std::size_t at = 0; at < argument.size();) {
    const std::size_t brace = argument.find('{', at);
    text(argument.substr(at, brace == std::string_view::npos ? brace : brace - at));
    if (brace == std::string_view::npos) return;
    if (argument.substr(brace, 2) == "{{") {
      text("{");
      at = brace + 2;
      continue;
    }
    const std::size_t end = argument.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", brace + 1);
    if (end != std::string_view::npos && argument[end] == '}' && end > brace + 1) {
      placeholder(argument.substr(brace + 1, end - brace - 1));
      at = end + 1;
    } else {
      text("{");
      at = brace + 1;
    }
  }
}

bool is_known(std::string_view word) { return std::find(words.begin(), words.end(), word) != words.end(); }

}  // namespace

std::vector<std::string> expand(std::span<const std::string> command, const Placeholders& values) {
  std::vector<std::string> out;
  for (const std::string& argument : command) {
    std::string& expanded = out.emplace_back();
    parse(
        argument, [&](std::string_view text) { expanded += text; },
        [&](std::string_view word) {
          expanded += is_known(word) ? value_of(word, values) : "{" + std::string(word) + "}";
        });
  }
  return out;
}

bool uses_placeholder(std::span<const std::string> command, std::string_view word) {
  bool used = false;
  for (const std::string& argument : command)
    parse(argument, [](std::string_view) {}, [&](std::string_view found) { used = used || found == word; });
  return used;
}

bool uses_placeholder(const DeploymentSpec& spec, std::string_view word) {
  return uses_placeholder(spec.command, word) ||
         std::any_of(spec.environment.begin(), spec.environment.end(),
                     [&](const auto& variable) { return uses_placeholder(std::vector{variable.second}, word); });
}

std::optional<std::string> unknown_placeholder(std::span<const std::string> command) {
  std::optional<std::string> unknown;
  for (const std::string& argument : command) {
    parse(
        argument, [](std::string_view) {},
        [&](std::string_view word) {
          if (!unknown && !is_known(word)) unknown = std::string(word);
        });
  }
  return unknown;
}

std::span<const std::string_view> placeholder_words() { return words; }

}  // namespace berth::deployment
