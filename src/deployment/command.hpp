// Placeholders in the command and the environment of a deployment and in the commands of its probes: {port}, {socket},
// {address}, {gpus}, {memory_bytes}, {memory_fraction}, {name}, {replica}. A placeholder is a word of lower-case
// letters in braces; any other brace is left as it is, so that JSON and shell variables can be arguments. "{{" gives
// "{".
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "berth/deployment.hpp"

namespace berth::deployment {

// The values of the placeholders for one replica.
struct Placeholders {
  std::uint16_t port = 0;
  std::uint32_t gpus = 0;          // their number; its environment lists which ones
  std::uint64_t memory_bytes = 0;  // on each of them; on the node without GPUs
  double memory_fraction = 1;      // of the memory of the smallest of them; rounded down, as BERTH_MEMORY_FRACTION
  std::string name;                // of the deployment
  std::uint32_t replica = 0;
  std::string socket = {};            // the path of a Unix socket in the folder of its job
  std::string address = "127.0.0.1";  // to listen on, with the port
};

std::vector<std::string> expand(std::span<const std::string> command, const Placeholders& values);

// Whether {word} is in one of the arguments.
bool uses_placeholder(std::span<const std::string> command, std::string_view word);
// Whether the command or the environment of a replica contains it.
bool uses_placeholder(const DeploymentSpec& spec, std::string_view word);
// A placeholder that expand() does not know and would leave as it is; absent: there is none.
std::optional<std::string> unknown_placeholder(std::span<const std::string> command);
// The known placeholder words.
std::span<const std::string_view> placeholder_words();

}  // namespace berth::deployment
