// `berth ps` as text and as JSON: a row for each job and each lease, the reasons why rows wait, the processes that
// keep a lease after its command has ended, and devices out of service. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "cli/text/ps_rows.hpp"
#include "cli/text/terminal.hpp"

namespace berth::cli {

// "8 devices with 20.0 GiB each".
std::string waited_for_text(const WaitedFor& wanted);

// How much of a page is shown: as many rows as fit on one screen of the style, with a count of the others, or all.
enum class Extent : std::uint8_t { screen, whole };
// Fits the columns of the style: less important columns are dropped.
std::string ps_text(const PsPage& page, std::span<const PsRow> rows, const Style& style, Extent extent = Extent::whole);
// These rows of the page as one object on one line, with whole ids; docs/guide/run.md lists its fields.
std::string ps_json(const PsPage& page, std::span<const PsRow> rows);

}  // namespace berth::cli
