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

constexpr std::chrono::milliseconds report_every{1'000}, look_every{20};
// Where nothing is new: a report that is older than 5 s no longer counts.
constexpr std::chrono::milliseconds repeat_every{3'000};

constexpr int niceness = 10;

void pause(std::chrono::milliseconds time, const std::stop_token& stop) {
  for (const Deadline deadline = Deadline::after(real_clock(), time);
       !deadline.passed(real_clock().now()) && !stop.stop_requested();)
    real_clock().sleep_for(look_every);
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
    while (made.wait_for(look_every) != std::future_status::ready)
      if (stop.stop_requested()) return;
    GatewayReport report = made.get();
    unsent_.insert(unsent_.end(), std::make_move_iterator(report.requests.begin()),
                   std::make_move_iterator(report.requests.end()));
    limit_records(unsent_, fleet::report_records_max);
    report.requests.clear();
    const bool is_new = !sent || !unsent_.empty() || report != last;
    if (!is_new && real_clock().now() - *sent < repeat_every) continue;
    last = report;
    report.requests = unsent_;
    const auto answer = client.request(
        "PUT", "/api/v1/gateway/report", format::document({{"report", format::to_json(report)}}),
        {.headers = {{"content-type", "application/json"}}, .timeout = std::chrono::seconds(5), .stop = stop});
    if (!answer) return;
    if (answer->status != 200) {
      if (!std::exchange(is_refused_, true))
        log_({format::LogLevel::warning,
              "the server refuses the report of the gateway, so that its requests are not shown",
              {{"status", std::to_string(answer->status)}}});
      if (answer->status == 400) unsent_.clear();  // a record in it would be refused again
      return;
    }
    is_refused_ = false;
    sent = real_clock().now();
    unsent_.clear();
  }
}

}  // namespace berth::gateway
