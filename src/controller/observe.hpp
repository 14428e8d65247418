// What a step of the controller tells after it has decided: the state of every deployment with the reason to look
// at first, events about what has changed since the step before, and when to look again.
#pragma once

#include "controller/survey.hpp"

namespace berth::controller {

// Reads what `step` starts, pauses and has found pending; adds to its deployments, events, memory and look_again.
void observe(const Survey& survey, Step& step);

}  // namespace berth::controller
