// A line of a ledger that another user wrote. What is accepted means the same after it was written again.
#include <cstdlib>
#include <string_view>

#include "ledger/lines.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace berth::ledger;
  const auto line = parse_line({reinterpret_cast<const char*>(data), size});
  if (!line) return 0;
  const auto written = [](const auto& parsed) {
    return std::visit([](const auto& kind) { return line_of(kind); }, parsed);
  };
  std::string text = written(*line);
  if (text.ends_with('\n')) text.pop_back();
  const auto again = parse_line(text);
  if (!again || again->index() != line->index() || written(*again) != written(*line)) std::abort();
  return 0;
}
