// Jobs as JSON, and their commands as text.
#pragma once

#include <boost/json/object.hpp>
#include <span>
#include <string>

#include "machine/job_store.hpp"

namespace berth::cli {

// "python train.py --epochs 3", with quotes where a shell would need them.
std::string command_text(std::span<const std::string> words);
boost::json::object job_to_json(const machine::Job& job);

}  // namespace berth::cli
