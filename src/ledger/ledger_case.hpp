// A folder of its own for the ledger of a test, and the requests most tests make.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "berth/ledger.hpp"
#include "ledger/test_folder.hpp"

namespace berth {

class LedgerCase : public testing::Test {
 protected:
  LedgerCase() {
    if (geteuid() == 0) chmod(folder_.path.c_str(), 01777);
    unsetenv("BERTH_LEASE");
  }
  std::shared_ptr<Ledger> open() const { return Ledger::open({folder_.path, nullptr}).value(); }
  static Ledger::Request request(const std::string& device, std::uint64_t bytes) {
    Ledger::Request wanted;
    wanted.name = "engine";
    wanted.claims = {{DeviceId(device), device, bytes, 0, false}};
    return wanted;
  }
  static LedgerLease take(Ledger& ledger, const std::string& device, std::uint64_t bytes) {
    return std::move(ledger.lock().value().add(request(device, bytes)).value());
  }

  TestFolder folder_;
};

}  // namespace berth
