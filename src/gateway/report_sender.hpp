// Sends what a gateway has counted to its server, about once a second where something is new. On a thread of its own:
// a server that is slow or gone does not delay requests.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

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

 private:
  void run(const std::stop_token& stop);
  // Until an error, or the end.
  void send_regularly(http::Client& client, const std::stop_token& stop);

  const std::function<Result<http::ClientOptions>()> server_;
  const std::function<void(Promised)> ask_;
  const format::Log log_;
  bool is_refused_ = false;  // by the server, and the log says so
  std::vector<fleet::RequestRecord> unsent_;
  std::jthread thread_;
};

}  // namespace berth::gateway
