#include "cli/verbs/simulate.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "berth/placement.hpp"
#include "cli/input/gunzip.hpp"
#include "cli/options.hpp"
#include "cli/text/terminal.hpp"
#include "format/json_text.hpp"
#include "simulate/requests.hpp"
#include "world/files.hpp"

namespace berth::cli {

using namespace format;
using namespace simulate;
using namespace world;
namespace {

constexpr double speed_min = 0.001, speed_max = 1'000'000;

std::string text_of(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}
std::string fixed(double value, int digits) {
  char text[400];  // large enough for any finite double
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

Result<void> check(const SimulateRequestsArguments& arguments) {
  if (arguments.replicas == 0) return wrong("a simulation needs at least one replica", "give --replicas of at least 1");
  if (!(arguments.load > 0) || !std::isfinite(arguments.load))
    return wrong("a load of " + text_of(arguments.load) + " is not possible",
                 "give --load above 0, where 1 is the capacity of the replicas");
  if (arguments.seeds == 0) return wrong("a simulation needs at least one seed", "give --seeds of at least 1");
  if (arguments.scale_ms && (!(*arguments.scale_ms > 0) || !std::isfinite(*arguments.scale_ms)))
    return wrong("a mean work of " + text_of(*arguments.scale_ms) + " ms is not possible", "give --scale-ms above 0");
  // At most about a year, so that nanoseconds fit.
  if (!(arguments.stale_ms >= 0 && arguments.stale_ms <= 3e10))
    return wrong("load that is " + text_of(arguments.stale_ms) + " ms old is not possible",
                 "give --stale-ms from 0 (always current) to 3e10");
  return {};
}

// The speeds in thousandths, one per replica.
Result<std::vector<std::uint32_t>> speeds_of(std::string_view text, std::size_t replicas) {
  std::vector<std::uint32_t> given;
  for (bool more = true; more;) {
    const std::string_view word = text.substr(0, text.find(','));
    more = word.size() < text.size();
    text.remove_prefix(word.size() + (more ? 1 : 0));
    double speed = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), speed);
    if (error != std::errc{} || end != word.data() + word.size() || !(speed >= speed_min && speed <= speed_max))
      return wrong("\"" + std::string(word) + "\" is not a speed",
                   "give --speeds such as 1,2, each from 0.001 to 1000000");
    given.push_back(static_cast<std::uint32_t>(std::lround(speed * 1000)));
  }
  std::vector<std::uint32_t> speeds_milli(replicas);
  for (std::size_t i = 0; i < replicas; ++i) speeds_milli[i] = given[i % given.size()];
  return speeds_milli;
}

Result<WorkModel> work_of(const std::string& name) {
  if (name == "tokens") return WorkModel::tokens;
  if (name == "ms") return WorkModel::ms;
  return wrong("there is no work model \"" + name + "\"", "give --work tokens or --work ms");
}

Result<std::vector<const Policy*>> policies_of(const std::string& name) {
  std::vector<const Policy*> chosen;
  if (name == "all") {
    for (const Policy& policy : policies()) chosen.push_back(&policy);
    return chosen;
  }
  const auto policy = policy_named(name);
  if (!policy) return Error(policy.error());
  return std::vector{*policy};
}

// One line on a terminal, after the first second.
class Progress {
 public:
  void show(std::string_view policy, std::size_t number, std::size_t count) {
    if (!stderr_is_terminal() || real_clock().now() - start_ < std::chrono::seconds(1)) return;
    std::fprintf(stderr, "\r\x1b[K%s %.*s", bar(static_cast<double>(number) / static_cast<double>(count), 20).c_str(),
                 static_cast<int>(policy.size()), policy.data());
    shown_ = true;
  }
  ~Progress() {
    if (shown_) std::fprintf(stderr, "\r\x1b[K");
  }

 private:
  const TimePoint start_ = real_clock().now();
  bool shown_ = false;
};

struct Row {
  std::string_view policy;
  Figures figures;
};

std::string to_json(const std::vector<Row>& rows, const Figures& central, bool all) {
  boost::json::array array;
  for (const auto& [policy, figures] : rows) {
    boost::json::object row{{"policy", policy}, {"p50", figures.p50_s}, {"p99", figures.p99_s}};
    if (central.p99_s > 0) row["p99_over_central"] = figures.p99_s / central.p99_s;
    row["imbalance"] = figures.imbalance;
    row["central_p50"] = central.p50_s;
    row["central_p99"] = central.p99_s;
    array.push_back(std::move(row));
  }
  return (all ? json_text(array) : json_text(array.front())) + "\n";
}

std::string result_text(const std::vector<Row>& rows, const Figures& central, const std::string& heading,
                        const Style& style) {
  Table table({"POLICY", ">P50 S", ">P99 S", ">P99/CENTRAL", ">IMBALANCE"});
  // Enough digits that both 20 ms and 20 minutes are readable.
  const double smallest = std::max(std::min(central.p50_s, 1.0), 1e-9);
  const int digits = 2 + static_cast<int>(std::ceil(-std::log10(smallest)));
  const auto add = [&](std::string_view name, const Figures& figures) {
    table.add({std::string(name), fixed(figures.p50_s, digits), fixed(figures.p99_s, digits),
               central.p99_s > 0 ? fixed(figures.p99_s / central.p99_s, 3) : "-", fixed(figures.imbalance, 3)});
  };
  for (const Row& row : rows) add(row.policy, row.figures);
  add("(central queue)", central);
  return paint(style, Colour::dim, heading) + "\n" + table.to_text();
}

std::string heading_of(const SimulateRequestsArguments& arguments, std::size_t requests) {
  std::string text = std::to_string(requests) + " requests, " + std::to_string(arguments.replicas) +
                     (arguments.replicas == 1 ? " replica" : " replicas") + " of speed " + arguments.speeds;
  text += arguments.learn_speeds ? " (learnt)" : "";
  text += ", load " + text_of(arguments.load);
  if (arguments.scale_ms) text += ", mean work " + text_of(*arguments.scale_ms) + " ms";
  if (arguments.stale_ms > 0) text += ", load reported every " + text_of(arguments.stale_ms) + " ms";
  return text + ", " + std::to_string(arguments.seeds) + (arguments.seeds == 1 ? " seed" : " seeds");
}

}  // namespace

int run_simulate_requests(const SimulateRequestsArguments& arguments) {
  if (const auto sound = check(arguments); !sound) return print_error(sound.error());
  const auto chosen = policies_of(arguments.policy);
  if (!chosen) return print_error(chosen.error());
  const auto speeds_milli = speeds_of(arguments.speeds, arguments.replicas);
  if (!speeds_milli) return print_error(speeds_milli.error());
  const auto work = work_of(arguments.work);
  if (!work) return print_error(work.error());
  const auto trace = read_text(arguments.trace)
                         .and_then([&](std::string bytes) { return gunzip(std::move(bytes), arguments.trace); })
                         .and_then([&](const std::string& text) { return read_trace(text, arguments.trace); });
  if (!trace) return print_error(trace.error());

  const auto jobs = make_jobs(*trace, {*work, arguments.scale_ms, arguments.load}, *speeds_milli);
  if (!jobs) return print_error(jobs.error());

  ReplayOptions knowledge;
  knowledge.learn_speeds = arguments.learn_speeds;
  knowledge.stale = Duration(std::llround(arguments.stale_ms * 1e6));
  const Figures central = figures_of(replay_central(*jobs, *speeds_milli), *speeds_milli);
  std::vector<Row> rows;
  {
    Progress progress;
    for (const Policy* policy : *chosen) {
      progress.show(policy->name, rows.size(), chosen->size());
      rows.push_back({policy->name, simulate_policy(*jobs, *speeds_milli, *policy, knowledge, arguments.seeds)});
    }
  }
  if (arguments.json) return print(to_json(rows, central, arguments.policy == "all"));
  return print(result_text(rows, central, heading_of(arguments, trace->size()), stdout_style()));
}

void add_simulate(const Verb& command) {
  const auto arguments = std::make_shared<SimulateRequestsArguments>();
  const Verb simulate = command.add("simulate", "simulate a policy on recorded load");
  Verb verb = simulate.add("requests", "replay a trace of requests on replicas, and compare with one central queue");
  const auto in = [](std::size_t least, std::size_t most, bool required = false) {
    OptionRules rules;
    rules.range = {least, most};
    rules.required = required;
    return rules;
  };
  OptionRules required;
  required.required = true;
  verb.option("--trace", "FILE", &arguments->trace,
              "one request per line: seconds, size in, size out; may be compressed with gzip", required);
  verb.option("--replicas", "N", &arguments->replicas, "number of replicas", in(1, 65'536, true));
  verb.option("--speeds", "S,...", &arguments->speeds,
              "speeds of the replicas, relative to each other; the list is repeated if it is too short");
  verb.option("--load", "L", &arguments->load,
              "load relative to the capacity of the replicas; above 1, the queue grows until the end", required);
  add_policy_option(verb, arguments->policy, "policy that chooses the replica: all,");
  verb.option("--seeds", "K", &arguments->seeds, "average over this many random seeds", in(1, 100'000));
  verb.option("--work", "MODEL", &arguments->work, "work of a request: tokens (5 ms + in/5000 + out/40 s) or ms (in)");
  verb.option("--scale-ms", "MS", &arguments->scale_ms, "scale all work to this mean");
  verb.option("--stale-ms", "MS", &arguments->stale_ms,
              "how often replicas report their load; requests that the policy has just placed count immediately");
  verb.flag("--learn-speeds", arguments->learn_speeds, "learn the speeds from finished work");
  verb.flag("--json", arguments->json, "print one JSON object; for all policies an array");
  verb.run([arguments] { return run_simulate_requests(*arguments); });
}

}  // namespace berth::cli
