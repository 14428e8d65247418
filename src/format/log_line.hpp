// Lines of a log: the messages of a server or an agent, as logfmt for journals and files, as JSON for tools, or for
// people at a terminal. Callers must not log secrets: no tokens, no values of environment variables.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace berth::format {

enum class LogLevel : std::uint8_t { info, warning, error };
std::string_view to_string(LogLevel level) noexcept;

using LogFields = std::vector<std::pair<std::string, std::string>>;  // names are single words

struct LogRecord {
  LogLevel level = LogLevel::info;
  std::string message;
  LogFields fields = {};
};
using Log = std::function<void(const LogRecord&)>;

enum class LogForm : std::uint8_t { logfmt, json, terminal, coloured_terminal };
// A line with its line end. `time=2026-11-15T12:01:02.345Z level=info msg="a sentence" key=value ...`, the same as
// an object, or `12:01:02 a sentence key=value ...` in local time, in which a level other than info precedes the
// sentence.
std::string log_line(LogForm form, std::uint64_t wall_time_us, const LogRecord& record);

}  // namespace berth::format
