#include "agent/relay_watch.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "agent/relay_program.hpp"
#include "agent/step.hpp"
#include "http/client.hpp"

namespace berth::agent {
namespace {

using format::LogLevel;

constexpr std::chrono::milliseconds call_time{1'000};
constexpr Duration tell_every = std::chrono::seconds(1), drain_look_every = std::chrono::milliseconds(50),
                   down_after = std::chrono::seconds(2), start_again_max = std::chrono::seconds(30),
                   runs_well_after = std::chrono::minutes(1);

bool is_idle(const relay::ControlAnswer& answer) {
  return std::all_of(answer.in_flight.begin(), answer.in_flight.end(), [](const auto& one) { return one.second == 0; });
}

}  // namespace

bool RelayWatch::Seen::is_drained(const std::string& target, std::uint64_t told) const {
  const auto found = in_flight.find(target);
  return number >= told && (found == in_flight.end() || found->second == 0);
}

RelayWatch::RelayWatch(const AgentOptions& options, std::function<void()> changed)
    : options_(options),
      changed_(std::move(changed)),
      url_(relay::control_url(options.folder)),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

RelayWatch::~RelayWatch() = default;

void RelayWatch::log(LogLevel level, std::string message, format::LogFields fields) const {
  if (options_.log) options_.log({level, std::move(message), std::move(fields)});
}

std::uint64_t RelayWatch::share(relay::Control control) {
  const std::lock_guard lock(mutex_);
  if (wanted_.number > 0 && wanted_.control == control) return wanted_.number;
  wanted_.control = std::move(control);
  ++wanted_.number;
  due_.set();
  return wanted_.number;
}

RelayWatch::Seen RelayWatch::seen() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

bool RelayWatch::is_up() const { return seen().state == State::up; }

void RelayWatch::set_state(State state) {
  {
    const std::lock_guard lock(mutex_);
    if (seen_.state == state) return;
    seen_.state = state;
    if (state != State::up) {  // what a new one has been told is not known
      seen_.number = 0;
      seen_.in_flight.clear();
    }
  }
  changed_();
}

void RelayWatch::run(const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] { due_.set(); });
  TimePoint next = TimePoint::max();
  while (!stop.stop_requested()) {
    due_.wait(next);
    if (!stop.stop_requested()) next = tell(stop);
  }
}

TimePoint RelayWatch::tell(const std::stop_token& stop) {
  Wanted wanted;
  {
    const std::lock_guard lock(mutex_);
    wanted = wanted_;
  }
  if (wanted.number == 0) return TimePoint::max();
  Result<http::Client> client = http::Client::create({.url = url_});
  if (!client) {
    if (seen().state == State::unknown && !wanted.control.gateways.empty())
      log(LogLevel::warning, "the agent cannot run a relay", {{"reason", client.error().message}});
    set_state(State::down);
    return TimePoint::max();
  }
  const Result<http::Response> told =
      client->request("PUT", relay::targets_path, to_text(wanted.control), {.timeout = call_time, .stop = stop});
  const TimePoint now = real_clock().now();
  if (told && told->status == 200) {
    if (const Result<relay::ControlAnswer> answer = relay::read_control_answer(told->body)) {
      heard_ = now;
      return take(*answer, wanted, stop);
    }
  }
  if (stop.stop_requested()) return now;
  const bool is_slow = !told && told.error().code == ErrorCode::timeout;
  if (is_slow && is_up() && now < heard_ + down_after) return now;
  const bool is_ending = told && told->status == 503;
  if (is_up() && !is_ending) {
    const std::string reason = told ? "it answers with status " + std::to_string(told->status) : told.error().message;
    log(LogLevel::warning, "the relay does not answer", {{"reason", reason}});
  }
  set_state(State::down);
  if (is_ending) return now + drain_look_every;
  if (wanted.control.gateways.empty()) return TimePoint::max();
  if (now < next_start_) return next_start_;
  return start(stop) ? now : next_start_;
}

TimePoint RelayWatch::take(const relay::ControlAnswer& answer, const Wanted& wanted, const std::stop_token& stop) {
  if (!is_up()) up_since_ = heard_;
  if (heard_ - up_since_ >= runs_well_after) starts_ = 0;
  const bool is_of_other_version = answer.version != options_.version;
  if (is_idle(answer) && (wanted.control.gateways.empty() || is_of_other_version)) {
    if (Result<http::Client> client = http::Client::create({.url = url_}))
      static_cast<void>(client->request("POST", relay::end_path, {}, {.timeout = call_time, .stop = stop}));
    set_state(State::down);
    return heard_ + drain_look_every;
  }
  bool drains = false;
  for (const relay::Target& target : wanted.control.targets) {
    const auto count = answer.in_flight.find(target.name);
    drains = drains || (target.is_draining && count != answer.in_flight.end() && count->second > 0);
  }
  bool is_news = false;
  {
    const std::lock_guard lock(mutex_);
    is_news = seen_.number != wanted.number || seen_.in_flight != answer.in_flight;
    seen_.number = wanted.number;
    seen_.in_flight = answer.in_flight;
  }
  set_state(State::up);
  if (is_news) changed_();
  return heard_ + (drains ? drain_look_every : tell_every);
}

bool RelayWatch::start(const std::stop_token& stop) {
  const Result<void> started = start_relay(options_, stop);
  next_start_ = real_clock().now() + std::min(back_off(++starts_), start_again_max);
  if (started)
    log(LogLevel::info, "the agent has started a relay");
  else if (!stop.stop_requested())
    log(LogLevel::warning, "the agent cannot start a relay", {{"reason", started.error().to_text()}});
  return started.has_value();
}

}  // namespace berth::agent
