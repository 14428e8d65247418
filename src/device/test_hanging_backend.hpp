// For tests of drivers that hang: a back end with the devices of another one, whose list(), links() or
// open() of one device block until release().
#pragma once

#include <latch>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "berth/device.hpp"

namespace berth::test {

class HangingBackend final : public Backend {
 public:
  enum class Hang { list, links, open };
  HangingBackend(std::string name, std::unique_ptr<Backend> inner, Hang hang, std::string device = {})
      : name_(std::move(name)), inner_(std::move(inner)), hang_(hang), device_(std::move(device)) {}

  void release() { released_.count_down(); }

  std::string_view name() const noexcept override { return name_; }
  Result<std::vector<DeviceInfo>> list() override {
    if (hang_ == Hang::list) released_.wait();
    Result<std::vector<DeviceInfo>> listed = inner_->list();
    if (listed) {
      for (DeviceInfo& info : *listed) info.backend = name_;
    }
    return listed;
  }
  Result<std::vector<Link>> links() override {
    if (hang_ == Hang::links) released_.wait();
    return inner_->links();
  }
  Result<std::shared_ptr<Device>> open(const DeviceId& id) override {
    if (hang_ == Hang::open && id.text() == device_) released_.wait();
    return inner_->open(id);
  }

 private:
  const std::string name_;
  const std::unique_ptr<Backend> inner_;
  const Hang hang_;
  const std::string device_;
  std::latch released_{1};
};

}  // namespace berth::test
