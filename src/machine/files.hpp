// The text files of world/files.hpp under the names that the folders above use.
#pragma once

#include "world/files.hpp"

namespace berth::machine {

using berth::create_text;
using berth::read_text;
using berth::write_private_text;
using berth::write_text;

}  // namespace berth::machine
