// The nouns of berth/deployment.hpp without their qualifier, for the services and the command, where these names have
// no other meaning. Only for internal files: the library does not take these names from programs that use it.
#pragma once

#include "berth/deployment.hpp"

namespace berth {

using deployment::Action;
using deployment::Affinity;
using deployment::Assignment;
using deployment::Cluster;
using deployment::DeploymentSpec;
using deployment::EgressPreference;
using deployment::EgressRoute;
using deployment::Fleet;
using deployment::KeyRef;
using deployment::LocalCpu;
using deployment::LocalGpu;
using deployment::NodeDevice;
using deployment::NodeView;
using deployment::OnCapacityExhausted;
using deployment::OnShortage;
using deployment::Pending;
using deployment::Plan;
using deployment::PlanLimits;
using deployment::Probe;
using deployment::Project;
using deployment::Provider;
using deployment::Reach;
using deployment::Reason;
using deployment::ReasonKind;
using deployment::Remote;
using deployment::Rollout;
using deployment::Runtime;
using deployment::RuntimeKind;
using deployment::ServingOptions;
using deployment::Spread;
using deployment::Transport;
using deployment::UnknownFields;
using deployment::UnknownTransport;

using deployment::infer_runtime;
using deployment::read_fleet;
using deployment::read_project;
using deployment::replicas_max;
using deployment::runtime_from;

}  // namespace berth
