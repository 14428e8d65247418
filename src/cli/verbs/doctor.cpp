// `berth doctor`; the facts and checks are in doctor/.
#include "cli/doctor/doctor.hpp"

#include "cli/options.hpp"

namespace berth::cli {

using namespace world;
namespace {

int run_doctor(const BackendOptions& backends, bool json) {
  const std::vector<Finding> findings = examine(gather_facts(backends));
  const int written = print(json ? findings_json(findings) : findings_text(findings, stdout_style()));
  const bool broken = !findings.empty() && findings.front().severity == Severity::error;
  return broken ? static_cast<int>(environment_error) : written;
}

}  // namespace

void add_doctor(const Verb& command) {
  struct Arguments {
    BackendOptions backends;
    bool json = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  Verb verb = command.add("doctor", "find problems with the devices of this machine, and show how to fix them");
  verb.flag("--json", arguments->json, "print one JSON array of findings");
  add_backend_options(verb, arguments->backends);
  verb.footer({"The exit status is 1 if a finding is an error."});
  verb.run([arguments] { return run_doctor(arguments->backends, arguments->json); });
}

}  // namespace berth::cli
