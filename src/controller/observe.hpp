// The output of a controller step beyond its actions: the state of every deployment with the most important
// reason, events about changes since the previous step, and when to look again.
#pragma once

#include "controller/survey.hpp"

namespace berth::controller {

// Reads which replicas `step` starts, pauses and leaves pending, and fills in its deployments, events, memory and
// look_again.
void observe(const Survey& survey, Step& step);

}  // namespace berth::controller
