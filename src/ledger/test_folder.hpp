// TestFolder, under the name that tests of the ledger and the machine use.
#pragma once

#include "world/test_folder.hpp"

namespace berth::ledger {
using world::TestFolder;
}  // namespace berth::ledger
