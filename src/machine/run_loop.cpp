#include "machine/run_loop.hpp"

#include <cstdio>
#include <utility>

namespace berth::machine {

RunEnd RunLoop::run(RunSettings& settings) {
  RunContext* const context = settings.context ? &*settings.context : nullptr;
  const std::vector<DeviceInfo> none;
  RunEnd end;
  const auto end_as = [&](RunEnd::Kind kind) {
    end.kind = kind;
    return std::move(end);
  };
  for (;;) {
    RunAttempt attempt;
    if (context) {
      during([&] {
        Result<Reservation> reserved = reserve_devices(*context, restarts_.failed(), reserve_until(), on_waiting());
        if (reserved) {
          decided(*reserved, record_decision("run", settings.program.path, *reserved));
          attempt.reserved.emplace(*std::move(reserved));
        } else {
          end.error = std::move(reserved).error();
        }
      });
      if (end.error) return end_as(RunEnd::Kind::not_reserved);
      if (!attempt.reserved->lease) {
        end.refused.emplace(*std::move(attempt.reserved));
        return end_as(RunEnd::Kind::refused);
      }
      attempt.granted = granted_by(context->wanted, *attempt.reserved);
    }
    const std::vector<DeviceInfo>& all = context ? context->observer.devices() : none;
    if (context && !settings.quiet)
      std::fputs(announcement(context->wanted, attempt.granted, all, settings.limit, settings.mps).c_str(), stderr);
    attempt.command =
        make_launch(settings.program, attempt.granted, all, settings.limit, settings.mps, settings.backends);
    if (context) put_in_lease(attempt.command, *context->ledger, attempt.reserved->lease, settings.host);
    prepare(attempt);
    const TimePoint began = real_clock().now();
    Result<CommandExit> over = start(attempt);
    if (context) give_back(*context->ledger, std::move(attempt.reserved->lease));
    if (!over) {
      end.error = std::move(over).error();
      return end_as(RunEnd::Kind::not_started);
    }
    end.last = *over;
    ended(attempt, *over);
    const RestartRule::Decision next =
        restarts_.decide(*over, context ? &context->observer : nullptr, attempt.granted, began);
    if (next.pause || next.is_fault) std::fprintf(stderr, "berth: the command %s\n", next.text.c_str());
    if (!next.pause) {
      end.text = next.text;
      return end_as(RunEnd::Kind::ended);
    }
    is_restarted(next);
    during([&] { real_clock().sleep_for(*next.pause); });
  }
}

}  // namespace berth::machine
