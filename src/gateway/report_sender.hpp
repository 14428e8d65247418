// Sends what a gateway has counted to its server, about once a second where something is new. On a thread of its own:
// a server that is slow or gone does not delay requests.
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
  // `server`: asked for every connection. `ask`: has the promise kept on the gateway's thread; the thread may have
  // ended.
  ReportSender(std::function<Result<http::ClientOptions>()> server, std::function<void(Promised)> ask, format::Log log);

  // Sends a last report, of a gateway that ends, if the server takes it soon. Nothing is sent after it.
  void finish(fleet::GatewayReport report);

 private:
  void run(const std::stop_token& stop);
  // Until an error, or the end.
  void send_regularly(http::Client& client, const std::stop_token& stop);
  void keep_records(fleet::GatewayReport& report);
  // With the records that were not sent yet. False: the server has not taken it.
  bool send(http::Client& client, fleet::GatewayReport report, std::chrono::milliseconds timeout,
            const std::stop_token& stop);

  const std::function<Result<http::ClientOptions>()> server_;
  const std::function<void(Promised)> ask_;
  const format::Log log_;
  bool is_refused_ = false;  // by the server, and the log says so
  std::vector<fleet::RequestRecord> unsent_;
  std::optional<TimePoint> taken_at_;  // the last report that the server took
  std::jthread thread_;
};

}  // namespace berth::gateway
