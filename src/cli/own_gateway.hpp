// The gateway that `berth serve` starts and watches: a process of its own, so that the death of one does not touch the
// other. A server that was killed leaves it running, and the next one finds it.
#pragma once

#include <string>
#include <thread>
#include <vector>

#include "berth/result.hpp"
#include "format/log_line.hpp"

namespace berth::cli {

class OwnGateway {
 public:
  // `arguments`: of the command, after its name. `folder`: of the gateway.
  OwnGateway(std::string folder, std::vector<std::string> arguments, format::Log log);
  // Ends the gateway, which finishes its requests first. It is not waited for.
  ~OwnGateway();

 private:
  void watch(const std::stop_token& stop);
  Result<void> check_address(bool is_running) const;

  const std::string folder_;
  const std::vector<std::string> arguments_;
  const format::Log log_;
  std::jthread thread_;
};

// What a gateway with these arguments writes into this file of its folder as soon as it serves: its version and they.
std::string gateway_start(const std::vector<std::string>& arguments);
std::string gateway_start_file(const std::string& folder);

// The gateway of that folder, if there is one, finishes its requests and ends.
void end_gateway(const std::string& folder);

}  // namespace berth::cli
