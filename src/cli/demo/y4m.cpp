#include "cli/demo/y4m.hpp"

#include <cstring>
#include <fstream>
#include <sstream>

namespace berth::cli {
namespace {

// Larger numbers mean a damaged file.
constexpr std::uint32_t side_max = 32768;

Error bad(const std::string& path, const std::string& why) {
  return {ErrorCode::invalid_argument, path + ": " + why,
          "give an 8-bit .y4m file, e.g. made by ffmpeg -pix_fmt yuv420p"};
}

std::uint32_t number(const std::string& text) {
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9' || value > side_max) return 0;
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return value > side_max ? 0 : static_cast<std::uint32_t>(value);
}

}  // namespace

Result<std::vector<Frame>> read_y4m(const std::string& path, std::size_t count_max) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{ErrorCode::not_found, "cannot open " + path + ": " + std::strerror(errno), "check the path"};
  std::string line;
  if (!std::getline(file, line) || !line.starts_with("YUV4MPEG2")) return bad(path, "not a YUV4MPEG2 file");
  std::uint32_t width = 0, height = 0;
  std::string sampling = "420";
  std::istringstream words(line.substr(9));
  for (std::string word; words >> word;) {
    if (word[0] == 'W') width = number(word.substr(1));
    if (word[0] == 'H') height = number(word.substr(1));
    if (word[0] == 'C') sampling = word.substr(1);
  }
  if (width == 0 || height == 0) return bad(path, "the header has no valid width and height");
  const std::size_t luma = std::size_t{width} * height;
  const std::size_t half_width = (width + 1) / 2, half_height = (height + 1) / 2;
  std::size_t chroma = 0;
  if (sampling.find("p1") != std::string::npos) return bad(path, "more than 8 bits per sample (" + sampling + ")");
  if (sampling.starts_with("420"))
    chroma = 2 * half_width * half_height;
  else if (sampling.starts_with("422"))
    chroma = 2 * half_width * height;
  else if (sampling.starts_with("444"))
    chroma = 2 * luma;
  else if (sampling != "mono")
    return bad(path, "unknown sampling " + sampling);

  std::vector<Frame> frames;
  while (frames.size() < count_max && std::getline(file, line)) {
    if (!line.starts_with("FRAME")) return bad(path, "frame " + std::to_string(frames.size()) + " has no FRAME line");
    Frame frame{width, height, std::vector<std::uint8_t>(luma)};
    if (!file.read(reinterpret_cast<char*>(frame.luma.data()), static_cast<std::streamsize>(luma)) ||
        !file.ignore(static_cast<std::streamsize>(chroma)) || file.gcount() != static_cast<std::streamsize>(chroma))
      return bad(path, "frame " + std::to_string(frames.size()) + " is cut off");
    frames.push_back(std::move(frame));
  }
  if (frames.empty()) return bad(path, "the file has no frames");
  return frames;
}

}  // namespace berth::cli
