// Messages over a Unix socket that carry open file descriptors to another process along with their text.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "world/descriptor.hpp"

namespace berth::world {

inline constexpr std::size_t message_descriptors_max = 32;

struct DescriptorMessage {
  std::string text;
  std::vector<Descriptor> descriptors;
};

// Sends at most message_descriptors_max descriptors, which this process also keeps. False: the message was
// not sent completely.
bool send_message(int socket, std::string_view text, std::span<const int> descriptors);
// Returns nullopt if the connection has ended, or if receiving failed (errno). A longer text is cut.
std::optional<DescriptorMessage> receive_message(int socket, std::size_t text_bytes_max);

}  // namespace berth::world
