#include "agent/relay_watch.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "agent/relay_program.hpp"
#include "agent/step.hpp"
#include "http/client.hpp"
#include "world/process_lock.hpp"

namespace berth::agent {
namespace {

using format::LogLevel;

const std::string current(relay::current_relay);
constexpr std::chrono::milliseconds call_time{1'000};
// A relay that is stopped or stuck keeps its lock, so that no other can start. It is killed after this many unanswered
// calls of about a second each (call_time): time is not measured, because this process may have been stopped in
// between.
constexpr std::uint32_t unanswered_max = 10;
constexpr Duration send_every = std::chrono::seconds(1), drain_look_every = std::chrono::milliseconds(50),
                   replaced_look_every = std::chrono::milliseconds(200), down_after = std::chrono::seconds(2),
                   start_again_max = std::chrono::seconds(30), runs_well_after = std::chrono::minutes(1);

bool is_idle(const relay::ControlAnswer& answer) {
  return std::all_of(answer.in_flight.begin(), answer.in_flight.end(),
                     [](const auto& entry) { return entry.second == 0; });
}

}  // namespace

bool RelayWatch::Seen::is_drained(const std::string& target, std::uint64_t state_number) const {
  const auto found = in_flight.find(target);
  return number >= state_number && (found == in_flight.end() || found->second == 0);
}

RelayWatch::RelayWatch(const AgentOptions& options, std::function<void()> changed)
    : options_(options),
      changed_(std::move(changed)),
      folder_(relay::relay_folder(options.folder)),
      url_(relay::control_url(folder_)),
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
    if (state != State::up) {  // a new relay has not confirmed any targets yet
      seen_.number = 0;
      seen_.in_flight.clear();
      seen_.problem.clear();
    }
  }
  changed_();
}

void RelayWatch::run(const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] { due_.set(); });
  TimePoint next = TimePoint::max();
  while (!stop.stop_requested()) {
    due_.wait(next);
    if (!stop.stop_requested()) next = send_state(stop);
  }
}

TimePoint RelayWatch::send_state(const std::stop_token& stop) {
  DesiredState wanted;
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
  end_replaced(stop);
  relay::Control control = wanted.control;
  for (relay::Target& target : control.targets)
    for (const auto& [name, in_flight] : replaced_)
      if (const auto found = in_flight.find(target.name); found != in_flight.end())
        target.in_flight_elsewhere += found->second;
  const Result<http::Response> response =
      client->request("PUT", relay::targets_path, to_text(control), {.timeout = call_time, .stop = stop});
  const TimePoint now = real_clock().now();
  if (response && response->status == 200) {
    if (const Result<relay::ControlAnswer> answer = relay::read_control_answer(response->body)) {
      answered_at_ = now;
      unanswered_.erase(current);
      return take(*answer, wanted, stop);
    }
  }
  if (stop.stop_requested()) return now;
  const bool is_slow = !response && response.error().code == ErrorCode::timeout;
  if (!is_slow)
    unanswered_.erase(current);
  else if (++unanswered_[current] >= unanswered_max)
    kill_silent(current);
  if (is_slow && is_up() && now < answered_at_ + down_after) return now;
  const bool is_ending = response && response->status == 503;  // because of a signal, or because it had no gateways
  if (is_ending && !wanted.control.gateways.empty() && now >= next_start_ && start(true, stop)) return now;
  if (is_up() && !is_ending) {
    const std::string reason =
        response ? "it answers with status " + std::to_string(response->status) : response.error().message;
    log(LogLevel::warning, "the relay does not answer", {{"reason", reason}});
  }
  set_state(State::down);
  if (is_slow) return now;
  if (is_ending) return now + drain_look_every;
  if (wanted.control.gateways.empty()) return TimePoint::max();
  if (now < next_start_) return next_start_;
  return start(false, stop) ? now : next_start_;
}

void RelayWatch::kill_silent(std::string_view name) {
  unanswered_.erase(std::string(name));
  const bool is_killed = kill_relay(relay::lock_file(folder_, name));
  log(LogLevel::warning,
      is_killed ? "the agent has killed a relay that did not answer"
                : "the agent cannot kill a relay that does not answer; end that process",
      {{"lock", relay::lock_file(folder_, name)}, {"unanswered", std::to_string(unanswered_max)}});
  if (is_killed) next_start_ = {};
}

void RelayWatch::end_replaced(const std::stop_token& stop) {
  const std::vector<std::string> names = relay::replaced_relays(folder_);
  std::erase_if(replaced_,
                [&](const auto& entry) { return std::find(names.begin(), names.end(), entry.first) == names.end(); });
  for (const std::string& name : names) {
    const std::string url = relay::control_url(folder_, name);
    Result<http::Client> client = http::Client::create({.url = url});
    if (!client) continue;
    const Result<http::Response> response =
        client->request("POST", relay::end_path, {}, {.timeout = call_time, .stop = stop});
    if (response && response->status == 202) {
      unanswered_.erase(name);
      if (Result<relay::ControlAnswer> answer = relay::read_control_answer(response->body))
        replaced_[name] = std::move(answer->in_flight);
    } else if (!response && response.error().code == ErrorCode::timeout) {
      if (++unanswered_[name] >= unanswered_max) kill_silent(name);
    } else if (!response && response.error().code == ErrorCode::unavailable &&
               !world::ProcessLock::holder(relay::lock_file(folder_, name))) {
      replaced_.erase(name);  // it was killed
      ::unlink(relay::lock_file(folder_, name).c_str());
      ::unlink(url.substr(url.find(':') + 1).c_str());
    }
  }
}

TimePoint RelayWatch::take(const relay::ControlAnswer& answer, const DesiredState& wanted,
                           const std::stop_token& stop) {
  if (!is_up()) up_since_ = answered_at_;
  if (answered_at_ - up_since_ >= runs_well_after) starts_ = 0;
  const bool is_of_other_version = answer.version != options_.version;
  if (is_of_other_version && !wanted.control.gateways.empty() && answered_at_ >= next_start_ && start(true, stop))
    return answered_at_;
  if (is_idle(answer) && (wanted.control.gateways.empty() || is_of_other_version)) {
    if (Result<http::Client> client = http::Client::create({.url = url_}))
      static_cast<void>(client->request("POST", relay::end_path, {}, {.timeout = call_time, .stop = stop}));
    set_state(State::down);
    return answered_at_ + drain_look_every;
  }
  std::map<std::string, std::uint32_t> in_flight = answer.in_flight;
  for (const auto& [name, more] : replaced_)
    for (const auto& [target, count] : more) in_flight[target] += count;
  bool drains = false;
  for (const relay::Target& target : wanted.control.targets) {
    const auto count = in_flight.find(target.name);
    drains = drains || (target.is_draining && count != in_flight.end() && count->second > 0);
  }
  bool is_news = false;
  {
    const std::lock_guard lock(mutex_);
    is_news = seen_.number != wanted.number || seen_.in_flight != in_flight || seen_.problem != answer.problem;
    seen_.number = wanted.number;
    seen_.in_flight = std::move(in_flight);
    seen_.problem = answer.problem;
  }
  set_state(State::up);
  if (is_news) changed_();
  return answered_at_ + (drains ? drain_look_every : replaced_.empty() ? send_every : replaced_look_every);
}

bool RelayWatch::start(bool replaces, const std::stop_token& stop) {
  const Result<void> started = start_relay(options_, replaces, stop);
  next_start_ = real_clock().now() + std::min(back_off(++starts_), start_again_max);
  if (started)
    log(LogLevel::info,
        replaces ? "the agent has replaced the relay, which finishes its requests" : "the agent has started a relay");
  else if (!stop.stop_requested())
    log(LogLevel::warning, "the agent cannot start a relay", {{"reason", started.error().to_text()}});
  return started.has_value();
}

}  // namespace berth::agent
