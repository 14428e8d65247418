// Jobs as a table and as JSON.
#pragma once

#include <boost/json/object.hpp>
#include <span>
#include <string>

#include "cli/text/terminal.hpp"
#include "machine/job_store.hpp"

namespace berth::cli {

// "python train.py --epochs 3", with quotes where a shell would need them.
std::string command_text(std::span<const std::string> words);
std::string jobs_text(std::span<const machine::Job> jobs, const Style& style);
boost::json::object job_to_json(const machine::Job& job);

}  // namespace berth::cli
