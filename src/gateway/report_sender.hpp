// Sends what a gateway has counted to its server, about once a second if there is news. Runs on its own thread: a
// server that is slow or gone does not delay requests.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "berth/clock.hpp"
#include "berth/result.hpp"
#include "fleet/requests.hpp"
#include "format/log_line.hpp"
#include "http/client.hpp"

namespace berth::gateway {

class ReportSender {
 public:
  using Promised = std::shared_ptr<std::promise<fleet::GatewayReport>>;
  // `server` is called for every connection. `ask` requests a report from the gateway's thread, which may have
  // ended.
  ReportSender(std::function<Result<http::ClientOptions>()> server, std::function<void(Promised)> ask, format::Log log);

  // Sends the last report of an ending gateway, if the server accepts it soon. Nothing is sent after it.
  void finish(fleet::GatewayReport report);

 private:
  void run(const std::stop_token& stop);
  // Sends until an error or the end.
  void send_regularly(http::Client& client, const std::stop_token& stop);
  void keep_records(fleet::GatewayReport& report);
  // Sends the report, with records that have not been sent yet. False: the server has not accepted it.
  bool send(http::Client& client, fleet::GatewayReport report, std::chrono::milliseconds timeout,
            const std::stop_token& stop);

  const std::function<Result<http::ClientOptions>()> server_;
  const std::function<void(Promised)> ask_;
  const format::Log log_;
  bool is_refused_ = false;  // refused by the server, which has been logged
  std::vector<fleet::RequestRecord> unsent_;
  std::optional<TimePoint> taken_at_;  // time of the last report that the server accepted
  std::jthread thread_;
};

}  // namespace berth::gateway
