#include "device/cuda/start.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "device/cuda/visible.hpp"

namespace berth::cuda {
namespace {

// The device files of the driver: nvidiactl, nvidia-uvm and a numbered one for each GPU.
std::vector<DeviceFile> device_files() {
  std::vector<DeviceFile> files;
  std::error_code failed;
  for (std::filesystem::directory_iterator entry("/dev", failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string name = entry->path().filename();
    const bool gpu =
        name.starts_with("nvidia") && name.size() > 6 && name.find_first_not_of("0123456789", 6) == std::string::npos;
    if (!gpu && name != "nvidiactl" && name != "nvidia-uvm") continue;
    files.push_back({entry->path(), access(entry->path().c_str(), R_OK | W_OK) == 0});
  }
  std::sort(files.begin(), files.end(), [](const DeviceFile& a, const DeviceFile& b) { return a.path < b.path; });
  return files;
}

}  // namespace

std::optional<Error> check_device_files(std::span<const DeviceFile> files) {
  const auto closed = std::find_if(files.begin(), files.end(), [](const DeviceFile& file) { return !file.may_open; });
  if (closed == files.end()) return {};
  return Error{ErrorCode::not_initialized,
               "this user has no permission to open " + closed->path + ", so CUDA finds no device",
               "see with ls -l " + closed->path + " which group may open it, and add the user to that group"};
}

Result<StartedDriver> start() {
  Result<const Driver*> loaded = Driver::load();
  if (!loaded) return std::move(loaded).error();
  const Driver& driver = **loaded;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr) {
    if (std::optional<Error> wrong = check_visible_devices(visible)) return *std::move(wrong);
  }
  Code code = driver.cuInit(0);
  int devices = 0;
  if (code == code_success) code = driver.cuDeviceGetCount(&devices);
  if (code != code_success) {
    std::optional<Error> closed = check_device_files(device_files());
    if (closed) closed->driver = DriverError{code, name_of(code)};
    if (closed) return *std::move(closed);
    if (code != code_no_device) return error_of(code, "starting", "");
    devices = 0;
  }
  if (visible != nullptr) {
    std::optional<Error> wrong = check_visible_devices(visible, static_cast<std::uint32_t>(devices));
    if (wrong) return *std::move(wrong);
  }
  return StartedDriver{&driver, devices};
}

}  // namespace berth::cuda
