// `berth ps` as text and as JSON: a row for each job and each lease, why rows wait, the processes that keep a lease
// after its command has ended, and devices out of service. Pure.
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
<<<<<<< ours
std::string ps_text(const PsPage& page, std::span<const PsRow> rows, const Style& style, Extent extent = Extent::whole);
// One object on one line, with whole ids, of these rows of the page; docs/run.md lists its fields.
std::string ps_json(const PsPage& page, std::span<const PsRow> rows);
=======
std::string leases_text(std::span<const LeaseRow> leases, const Style& style);
// The whole page: leases, waiting requests, devices out of service.
std::string ps_text(std::span<const LeaseRow> leases, std::span<const IntentRow> intents, const Style& style);
// One object on one line, with whole ids; docs/guide/run.md lists its fields.
std::string ps_json(std::span<const LeaseRow> leases, std::span<const IntentRow> intents,
                    std::span<const machine::Job> jobs = {});
>>>>>>> theirs

}  // namespace berth::cli
