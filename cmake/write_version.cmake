# Writes version.hpp with the version and the commit; touches it only on change.
execute_process(COMMAND git -C ${SOURCE} rev-parse --short HEAD OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_QUIET RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  set(commit "unknown commit")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "// Generated. What `berth --version` prints.
#pragma once
namespace berth::cli {
inline constexpr const char* version = \"${VERSION} (${commit})\";
}  // namespace berth::cli
")
