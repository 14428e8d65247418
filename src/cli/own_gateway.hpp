// The gateway that `berth serve` starts and watches: a separate process, so that neither is affected if the other
// dies. A killed server leaves it running, and the next one finds it.
#pragma once

#include <string>
#include <thread>
#include <vector>

#include "berth/result.hpp"
#include "format/log_line.hpp"

namespace berth::cli {

class OwnGateway {
 public:
  // `arguments`: those after the command's name. `folder`: the gateway's.
  OwnGateway(std::string folder, std::vector<std::string> arguments, format::Log log);
  // Ends the gateway, which finishes its requests first. Does not wait for that.
  ~OwnGateway();

 private:
  void watch(const std::stop_token& stop);
  Result<void> check_address(bool is_running) const;

  const std::string folder_;
  const std::vector<std::string> arguments_;
  const format::Log log_;
  std::jthread thread_;
};

// What a gateway with these arguments writes into this file of its folder as soon as it serves: its version and these
// arguments.
std::string gateway_start(const std::vector<std::string>& arguments);
std::string gateway_start_file(const std::string& folder);

// Makes the gateway of that folder, if there is one, finish its requests and end.
void end_gateway(const std::string& folder);

}  // namespace berth::cli
