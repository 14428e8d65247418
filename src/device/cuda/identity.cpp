#include "device/cuda/identity.hpp"

#include <cstdio>

namespace berth::cuda {

std::string uuid_text(std::string_view prefix, const UuidBytes& uuid) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text = std::string(prefix) + "-";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid[i]);
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

std::string pci_text(int domain, int bus, int device) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.0", static_cast<unsigned>(domain), static_cast<unsigned>(bus),
                static_cast<unsigned>(device));
  return text.data();
}

}  // namespace berth::cuda
