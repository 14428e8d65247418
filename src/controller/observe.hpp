// What a step of the controller tells after it has decided: the state of every deployment with the reason to look
// at first, events about what has changed since the step before, and when to look again.
#pragma once

#include <set>

#include "controller/survey.hpp"

namespace berth::controller {

// `paused`: deployments that this step pauses.
void observe(const Survey& survey, Step& step, const std::set<DeploymentId>& paused);

}  // namespace berth::controller
