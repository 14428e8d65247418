// How many connections a server may have: what its configuration asks for, bounded by the process's limit on open
// files.
#pragma once

#include <cstddef>

#include "http/server.hpp"

namespace berth::http {

struct ConnectionLimits {
  std::size_t all = 0;         // over TCP; 0: as many as the files allow
  std::size_t of_address = 0;  // from any other machine; 0: half of all
};

// `files`: how many open files connections over TCP may use. An eighth is for other machines: any user of this machine
// can open the others.
Limits limits_within(std::size_t files, const ConnectionLimits& asked, Limits limits);

// Raises the soft limit on open files to `wanted` if it is lower, as far as the hard limit permits, and returns it.
// Programs that this process starts inherit it.
std::size_t allow_open_files(std::size_t wanted);

}  // namespace berth::http
