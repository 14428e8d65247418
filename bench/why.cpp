// Whether the true cause of a refusal is named first: in 200 generated situations, each with one known cause
// (why_situations.hpp), and in those of them that simulated devices can express, through `berth pick` and `berth why`.
// For every situation, the benchmark verifies that the cause is the true one: removing it makes the request fit, and
// removing any other single cause does not.

#include "report.hpp"
#include "why_command.hpp"
#include "why_situations.hpp"

namespace berth::bench {
namespace {

constexpr std::size_t situations = 200;
constexpr std::size_t command_situations = 56;

GroupDecision decide(const Situation& s, Explanation* explanation = nullptr) {
  const std::vector<DeviceView> views = s.machine.seen();
  const auto all = policies();
  const Policy& policy = all[views.size() % all.size()];
  return choose_group(policy, s.requirements, s.count, views, {}, 0, explanation);
}

// Gives one of the requested devices all the memory that they have left together.
void join_memory(Situation& s) {
  const Requirements& r = s.requirements;
  if (s.count > 1 || r.whole || !r.only.empty()) return;
  std::uint64_t left = 0;
  DeviceView* chosen = nullptr;
  s.each_target([&](DeviceView& view, DeviceInfo& info) {
    if (!view.memory_bytes_free || !info.memory_bytes_total) return;
    left += *view.memory_bytes_free - view.memory_bytes_promised;
    info.memory_bytes_total = left;
    chosen = &view;
  });
  if (chosen == nullptr) return;
  chosen->memory_bytes_free = left;
  chosen->memory_bytes_promised = 0;
}

// Removes one cause on every device of the machine.
void lift(Cause cause, Situation& s) {
  Requirements& r = s.requirements;
  switch (cause) {
    case Cause::pinned: return r.only.clear();
    case Cause::avoided: return r.avoid.clear();
    case Cause::backend: return r.backends.clear();
    case Cause::capability: return r.capability_min.reset();
    case Cause::feature: return r.features.clear();
    case Cause::label: return r.labels.clear();
    case Cause::too_few_devices: return s.add_targets(s.count);
    case Cause::memory_fragmented: return join_memory(s);
    default: break;
  }
  for (std::size_t i = 0; i < s.machine.infos.size(); ++i) {
    DeviceView& view = s.view(i);
    DeviceInfo& info = s.info(i);
    const auto replace = [](auto& field, auto bad, auto good) {
      if (field == bad) field = good;
    };
    const auto end_use = [&] {
      if (view.memory_bytes_free && info.memory_bytes_total) view.memory_bytes_free = *info.memory_bytes_total;
    };
    switch (cause) {
      case Cause::cordoned: replace(view.intent, Intent::cordoned, Intent::in_service); break;
      case Cause::draining: replace(view.intent, Intent::draining, Intent::in_service); break;
      case Cause::quarantined: replace(view.health, Health::quarantined, Health::healthy); break;
      case Cause::lost: replace(view.health, Health::lost, Health::healthy); break;
      case Cause::probation: replace(view.health, Health::probation, Health::healthy); break;
      case Cause::stale: replace(view.sample, SampleState::stale, SampleState::fresh); break;
      case Cause::silent: replace(view.sample, SampleState::unknown, SampleState::fresh); break;
      case Cause::held: view.holders = 0; break;
      case Cause::held_exclusively: view.held_exclusively = false; break;
      case Cause::kept: view.kept_for_waiting = false; break;
      case Cause::memory_promised: view.memory_bytes_promised = 0; break;
      case Cause::memory_shared: info.memory_domain.clear(); break;
      case Cause::memory_in_use: end_use(); break;
      case Cause::occupied:
        if (!r.whole) break;
        view.other_processes = 0;
        end_use();
        break;
      case Cause::memory_unknown:
        if (!view.memory_bytes_free) view.memory_bytes_free = *info.memory_bytes_total;
        if (!info.memory_bytes_total) info.memory_bytes_total = *view.memory_bytes_free;
        break;
      case Cause::memory_too_small:
        if (info.memory_bytes_total.value_or(s.need()) >= s.need()) break;
        info.memory_bytes_total = s.need();
        view.memory_bytes_free = s.need();
        break;
      default: break;
    }
  }
}

// Whether removing `rival` may make the request fit although `cause` is the true cause.
bool is_no_rival(Cause rival, Cause cause) {
  // More devices would always suffice, a device that does not report its memory may or may not have room, and the user
  // wants the chosen devices (a pin).
  if (rival == Cause::too_few_devices || rival == Cause::memory_unknown || rival == Cause::pinned) return true;
  // Both causes are about the same bytes, counted on each device instead of in total, or as occupied.
  if (cause == Cause::memory_fragmented) return rival == Cause::memory_in_use || rival == Cause::memory_promised;
  return cause == Cause::occupied && rival == Cause::memory_in_use;
}

// Returns why the situation is not what it claims to be; empty if it is.
std::string wrong_premise(const Situation& s, Cause cause) {
  if (!decide(s).winners.empty()) return "the request fits as it is";
  for (int i = 0; i <= static_cast<int>(Cause::memory_shared); ++i) {
    const Cause rival = static_cast<Cause>(i);
    if (rival != cause && is_no_rival(rival, cause)) continue;
    Situation lifted = s;
    lift(rival, lifted);
    const bool fits = !decide(lifted).winners.empty();
    if (rival == cause && !fits) return "lifting the cause does not make it fit";
    if (rival != cause && fits) return "lifting " + std::string(to_string(rival)) + " makes it fit as well";
  }
  return {};
}

void add_share(Report& report, std::string name, std::size_t right, std::size_t all, std::size_t kinds) {
  report.add({.name = std::move(name),
              .ours = static_cast<double>(right) / static_cast<double>(all),
              .peer = std::nullopt,
              .unit = "share",
              .better = Better::higher,
              .goal = 1.0,
              .fields = {{"situations", static_cast<double>(all)}, {"kinds", static_cast<double>(kinds)}}});
}

void measure(Report& report) {
  std::size_t right = 0, sound = 0;
  for (std::size_t seed = 0; seed < situations; ++seed) {
    const Kind& kind = kinds[seed % std::size(kinds)];
    const Situation s = make(kind, seed, {0, 1, 2, 3, 4, 5, 6});
    const std::string title = "seed " + std::to_string(seed) + ", " + std::string(kind.name) + ": ";
    const std::string wrong = wrong_premise(s, kind.cause);
    sound += wrong.empty() ? 1 : 0;
    if (!wrong.empty()) report.note(title + wrong);
    Explanation explanation;
    decide(s, &explanation);
    const std::string reason = explanation.reason();
    const bool named = explanation.cause == kind.cause && reason.find(kind.word) != std::string::npos;
    right += named ? 1 : 0;
    if (!named)
      report.note(title + "named " + (explanation.cause ? std::string(to_string(*explanation.cause)) : "nothing") +
                  ": " + reason);
  }
  add_share(report, "true_cause", right, situations, std::size(kinds));
  add_share(report, "premise", sound, situations, std::size(kinds));
}

void measure_command(Report& report) {
  const std::optional<Command> command = Command::find();
  if (!command) {
    report.note("berth is not built beside this benchmark: none of its cases is asked");
    return add_share(report, "command", 0, command_situations, 0);
  }
  std::vector<const Kind*> able;
  for (const Kind& kind : kinds) {
    if (kind.for_command) able.push_back(&kind);
  }
  std::size_t right = 0;
  for (std::size_t seed = 0; seed < command_situations; ++seed) {
    const Kind& kind = *able[seed % able.size()];
    const Command::Answer answer = command->ask(make(kind, seed, command_spoils));
    const std::string cause = "\"cause\":\"" + std::string(to_string(kind.cause)) + "\"";
    const bool named = answer.status == 3 && answer.refusal.find(kind.word) != std::string::npos &&
                       answer.why.find(cause) != std::string::npos;
    right += named ? 1 : 0;
    if (!named)
      report.note("seed " + std::to_string(seed) + ", " + std::string(kind.name) + ": status " +
                  std::to_string(answer.status) + ": " + answer.refusal);
  }
  add_share(report, "command", right, command_situations, able.size());
}

}  // namespace
}  // namespace berth::bench

int main(int argc, char** argv) {
  berth::bench::Report report("why", argc, argv);
  if (report.wants("true_cause") || report.wants("premise")) berth::bench::measure(report);
  if (report.wants("command")) berth::bench::measure_command(report);
}
