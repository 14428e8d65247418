#include "machine/mps.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace berth::machine {
namespace {

// A folder that CUDA_MPS_PIPE_DIRECTORY names.
class Mps : public testing::Test {
 protected:
  Mps() : folder_(std::filesystem::temp_directory_path() / ("berth-mps-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
    setenv("CUDA_MPS_PIPE_DIRECTORY", folder_.c_str(), 1);
  }
  ~Mps() override {
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    std::filesystem::remove_all(folder_);
  }
  std::string control() const { return folder_ / "control"; }

 private:
  const std::filesystem::path folder_;
};

TEST_F(Mps, ARegularFileIsNotADaemon) {
  EXPECT_FALSE(mps_control_socket());
  std::ofstream(control()) << "anything";
  EXPECT_FALSE(mps_control_socket());
}

TEST_F(Mps, ASocketCountsOnlyWhileAProcessListens) {
  const int daemon = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  control().copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(daemon, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(daemon, 1), 0);
  EXPECT_EQ(mps_control_socket(), control());
  // Another user's socket is not trusted; only root can create one here.
  if (geteuid() == 0) {
    ASSERT_EQ(lchown(control().c_str(), 12345, 12345), 0);
    EXPECT_FALSE(mps_control_socket());
    ASSERT_EQ(lchown(control().c_str(), 0, 0), 0);
  }
  close(daemon);
  EXPECT_TRUE(std::filesystem::exists(control())) << "the file remains, as that of the daemon does";
  EXPECT_FALSE(mps_control_socket());
}

}  // namespace
}  // namespace berth::machine
