#include "gateway/report_sender.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <iterator>
#include <optional>
#include <utility>

#include "berth/clock.hpp"
#include "fleet_format/fleet_json.hpp"

namespace berth::gateway {

using fleet::GatewayReport;

namespace {

constexpr std::chrono::milliseconds report_every{1'000}, poll_interval{20};
// Interval of unchanged reports: those older than 5 s no longer count.
constexpr std::chrono::milliseconds repeat_every{3'000};
constexpr std::chrono::milliseconds report_answer_time{5'000}, last_answer_time{2'000};
// Outages of the server that lasted at least this long are reported to it.
constexpr std::chrono::seconds silent_min{10};

constexpr int niceness = 10;

void pause(std::chrono::milliseconds time, const std::stop_token& stop) {
  for (const Deadline deadline = Deadline::after(real_clock(), time);
       !deadline.passed(real_clock().now()) && !stop.stop_requested();)
    real_clock().sleep_for(poll_interval);
}

}  // namespace

ReportSender::ReportSender(std::function<Result<http::ClientOptions>()> server, std::function<void(Promised)> ask,
                           format::Log log)
    : server_(std::move(server)),
      ask_(std::move(ask)),
      log_(std::move(log)),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

void ReportSender::run(const std::stop_token& stop) {
  // Hundreds of records take milliseconds to write, for which requests must not wait.
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), niceness);
  while (!stop.stop_requested()) {
    pause(report_every, stop);
    const auto server = server_();
    if (!server) continue;
    auto client = http::Client::create(*server);
    if (client) send_regularly(*client, stop);
  }
}

void ReportSender::send_regularly(http::Client& client, const std::stop_token& stop) {
  GatewayReport last;  // without its records
  std::optional<TimePoint> sent;
  for (; !stop.stop_requested(); pause(report_every, stop)) {
    const auto promised = std::make_shared<std::promise<GatewayReport>>();
    std::future<GatewayReport> made = promised->get_future();
    ask_(promised);
    // Once stopping has begun, no further report is made.
    while (made.wait_for(poll_interval) != std::future_status::ready)
      if (stop.stop_requested() && made.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
    GatewayReport report = made.get();
    keep_records(report);
    const bool is_new = !sent || !unsent_.empty() || report != last;
    if (!is_new && real_clock().now() - *sent < repeat_every) continue;
    last = report;
    if (!send(client, std::move(report), report_answer_time, stop)) return;
    sent = taken_at_;
  }
}

void ReportSender::finish(GatewayReport report) {
  thread_.request_stop();
  thread_.join();
  keep_records(report);
  const auto server = server_();
  if (!server) return;
  if (auto client = http::Client::create(*server)) send(*client, std::move(report), last_answer_time, {});
}

void ReportSender::keep_records(GatewayReport& report) {
  unsent_.insert(unsent_.end(), std::make_move_iterator(report.requests.begin()),
                 std::make_move_iterator(report.requests.end()));
  limit_records(unsent_, fleet::report_records_max);
  report.requests.clear();
}

bool ReportSender::send(http::Client& client, GatewayReport report, std::chrono::milliseconds timeout,
                        const std::stop_token& stop) {
  report.requests = unsent_;
  const auto silent =
      std::chrono::duration_cast<std::chrono::seconds>(taken_at_ ? real_clock().now() - *taken_at_ : Duration::zero());
  if (silent >= silent_min) report.silent_s = static_cast<std::uint64_t>(silent.count());
  const auto answer =
      client.request("PUT", "/api/v1/gateway/report", format::document({{"report", format::to_json(report)}}),
                     {.headers = {{"content-type", "application/json"}}, .timeout = timeout, .stop = stop});
  if (!answer) return false;
  if (answer->status != 200) {
    if (!std::exchange(is_refused_, true))
      log_({format::LogLevel::warning,
            "the server refused the gateway's report, so its requests are not shown",
            {{"status", std::to_string(answer->status)}}});
    if (answer->status == 400) unsent_.clear();  // its records would be refused again
    return false;
  }
  is_refused_ = false;
  taken_at_ = real_clock().now();
  unsent_.clear();
  return true;
}

}  // namespace berth::gateway
