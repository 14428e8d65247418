// With a scripted loader in place of the system's library.
#include "device/opencl/find_devices.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>

#include "device/opencl/backend.hpp"

namespace berth::opencl {
namespace {

TEST(OpenclLoader, TheListOfDriversIsLeftAsItWas) {
  const char* const given = std::getenv(drivers_variable);
  const std::string earlier = given ? given : "";
  ::setenv(drivers_variable, "first.so:second.so", 1);
  Api api;
  api.clGetPlatformIDs = [](cl_uint, cl_platform_id*, cl_uint*) -> cl_int {
    *std::strchr(std::getenv(drivers_variable), ':') = '\0';
    return CL_SUCCESS;
  };
  load_drivers(api);
  EXPECT_STREQ(std::getenv(drivers_variable), "first.so:second.so");
  ::unsetenv(drivers_variable);
  api.clGetPlatformIDs = [](cl_uint, cl_platform_id*, cl_uint*) -> cl_int { return CL_PLATFORM_NOT_FOUND_KHR; };
  load_drivers(api);
  if (!earlier.empty()) ::setenv(drivers_variable, earlier.c_str(), 1);
}

struct ScriptedDevice {
  std::map<cl_device_info, std::string> answers;  // raw bytes; what is not here is CL_INVALID_VALUE

  ScriptedDevice& text(cl_device_info what, const std::string& value) {
    answers[what] = value + '\0';
    return *this;
  }
  template <class T>
  ScriptedDevice& value(cl_device_info what, T value) {
    answers[what] = std::string(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
};
struct ScriptedPlatform {
  std::string name;
  std::string suffix;
  std::vector<ScriptedDevice> devices;
  cl_int devices_code = CL_SUCCESS;
  std::string version = "OpenCL 3.0";
};
struct Script {
  cl_int platforms_code = CL_SUCCESS;
  std::vector<ScriptedPlatform> platforms;
};
Script* script = nullptr;

cl_int answer(const std::string& bytes, std::size_t space, void* to, std::size_t* used) {
  if (used) *used = bytes.size();
  if (!to) return CL_SUCCESS;
  if (space < bytes.size()) return CL_INVALID_VALUE;
  std::memcpy(to, bytes.data(), bytes.size());
  return CL_SUCCESS;
}

Api scripted_api() {
  Api api;
  api.clGetPlatformIDs = [](cl_uint space, cl_platform_id* to, cl_uint* count) -> cl_int {
    if (script->platforms_code != CL_SUCCESS) return script->platforms_code;
    if (count) *count = static_cast<cl_uint>(script->platforms.size());
    for (cl_uint i = 0; to && i < space; ++i) to[i] = reinterpret_cast<cl_platform_id>(&script->platforms[i]);
    return CL_SUCCESS;
  };
  api.clGetPlatformInfo = [](cl_platform_id id, cl_platform_info what, std::size_t space, void* to,
                             std::size_t* used) -> cl_int {
    const auto& platform = *reinterpret_cast<ScriptedPlatform*>(id);
    if (what == CL_PLATFORM_ICD_SUFFIX_KHR && !platform.suffix.empty()) {
      return answer(platform.suffix + '\0', space, to, used);
    }
    if (what == CL_PLATFORM_VERSION) return answer(platform.version + '\0', space, to, used);
    if (what == CL_PLATFORM_NAME) return answer(platform.name + '\0', space, to, used);
    return CL_INVALID_VALUE;
  };
  api.clGetDeviceIDs = [](cl_platform_id id, cl_device_type, cl_uint space, cl_device_id* to,
                          cl_uint* count) -> cl_int {
    auto& platform = *reinterpret_cast<ScriptedPlatform*>(id);
    if (platform.devices_code != CL_SUCCESS) return platform.devices_code;
    if (platform.devices.empty()) return CL_DEVICE_NOT_FOUND;
    if (count) *count = static_cast<cl_uint>(platform.devices.size());
    for (cl_uint i = 0; to && i < space; ++i) to[i] = reinterpret_cast<cl_device_id>(&platform.devices[i]);
    return CL_SUCCESS;
  };
  api.clGetDeviceInfo = [](cl_device_id id, cl_device_info what, std::size_t space, void* to,
                           std::size_t* used) -> cl_int {
    const auto& answers = reinterpret_cast<ScriptedDevice*>(id)->answers;
    const auto found = answers.find(what);
    return found == answers.end() ? CL_INVALID_VALUE : answer(found->second, space, to, used);
  };
  return api;
}

Result<std::vector<DeviceInfo>> list_scripted(Script wanted) {
  script = &wanted;
  const Api api = scripted_api();
  return make_backend(api, {})->list();
}

ScriptedDevice scripted_gpu(const std::string& name, const std::string& extensions = "") {
  return ScriptedDevice()
      .value<cl_device_type>(CL_DEVICE_TYPE, CL_DEVICE_TYPE_GPU)
      .text(CL_DEVICE_NAME, name)
      .text(CL_DEVICE_VERSION, "OpenCL 3.0 CUDA")
      .text(CL_DEVICE_EXTENSIONS, extensions)
      .value<cl_ulong>(CL_DEVICE_GLOBAL_MEM_SIZE, 8ULL << 30)
      .value<cl_uint>(CL_DEVICE_MAX_COMPUTE_UNITS, 132)
      .value<cl_bool>(CL_DEVICE_COMPILER_AVAILABLE, CL_TRUE);
}

TEST(OpenclLoader, AMissingLibraryIsNotInitializedWithAdvice) {
  const char* const names[] = {"libNoSuchOpenCL.so.1", "libNoSuchOpenCL.so"};
  const Result<Api> api = load_api(names);
  ASSERT_FALSE(api);
  EXPECT_EQ(api.error().code, ErrorCode::not_initialized);
  EXPECT_NE(api.error().message.find("libNoSuchOpenCL.so.1, libNoSuchOpenCL.so"), std::string::npos);
  EXPECT_NE(api.error().advice.find("install"), std::string::npos);
}

TEST(OpenclLoader, ALibraryWithoutTheFunctionsIsRefusedByName) {
  const char* const names[] = {"libc.so.6"};
  const Result<Api> api = load_api(names);
  ASSERT_FALSE(api);
  EXPECT_EQ(api.error().code, ErrorCode::not_initialized);
  EXPECT_NE(api.error().message.find("has no function cl"), std::string::npos) << api.error().message;
}

TEST(OpenclList, ALoaderWithoutPlatformsListsNothing) {
  const auto none = list_scripted({.platforms_code = CL_PLATFORM_NOT_FOUND_KHR, .platforms = {}});
  ASSERT_TRUE(none) << none.error().to_text();
  EXPECT_TRUE(none->empty());
  EXPECT_TRUE(list_scripted({}).value().empty());
  EXPECT_TRUE(list_scripted({.platforms = {{"Empty", "E", {}}}}).value().empty());
}

TEST(OpenclList, APlatformThatFailsDoesNotHideAnother) {
  const auto list = list_scripted(
      {.platforms = {{"Broken", "B", {}, CL_OUT_OF_HOST_MEMORY}, {"Works", "W", {scripted_gpu("Chip")}}}});
  ASSERT_TRUE(list) << list.error().to_text();
  ASSERT_EQ(list->size(), 1U);
  EXPECT_EQ(list->front().id, DeviceId("gpu-opencl-0"));
}

TEST(OpenclList, IfEveryPlatformFailsTheFirstErrorIsReturned) {
  const auto list = list_scripted(
      {.platforms = {{"Broken", "B", {}, CL_OUT_OF_HOST_MEMORY}, {"Worse", "W", {}, CL_INVALID_PLATFORM}}});
  ASSERT_FALSE(list);
  EXPECT_EQ(list.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(list.error().message.find("'Broken'"), std::string::npos);
  ASSERT_TRUE(list.error().driver);
  EXPECT_EQ(list.error().driver->name, "CL_OUT_OF_HOST_MEMORY");
}

TEST(OpenclList, TheIdOfAGpuIsItsUuid) {
  std::array<cl_uchar, 16> uuid{};
  std::iota(uuid.begin(), uuid.end(), cl_uchar{0xa0});
  const auto gpu = scripted_gpu("NVIDIA H200", "cl_khr_icd cl_khr_device_uuid cl_khr_pci_bus_info cl_khr_fp64")
                       .value(CL_DEVICE_UUID_KHR, uuid)
                       .value(CL_DEVICE_PCI_BUS_INFO_KHR, cl_device_pci_bus_info_khr{0, 0x8a, 0, 0});
  const auto list = list_scripted({.platforms = {{"NVIDIA CUDA", "NV", {gpu}}}});
  ASSERT_TRUE(list);
  const DeviceInfo& info = list->front();
  EXPECT_EQ(info.id, DeviceId("GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf"));
  EXPECT_EQ(info.pci_address, "0000:8a:00.0");
  EXPECT_EQ(info.capability, (Capability{3, 0}));
  EXPECT_EQ(info.compute_units, 132U);
  EXPECT_EQ(info.memory_bytes_total, 8ULL << 30);
  EXPECT_EQ(info.memory_domain, info.id.text());
  EXPECT_FALSE(info.is_fallback);
  EXPECT_TRUE(info.features.contains("opencl_c"));
  EXPECT_FALSE(info.features.contains("stream_priority"));
}

TEST(OpenclList, WithoutAUuidTheIdIsThePciAddress) {
  const auto gpu = scripted_gpu("Chip", "cl_nv_device_attribute_query")
                       .value<cl_uint>(0x4008, 0x1b)            // bus
                       .value<cl_uint>(0x4009, (3U << 3) | 1U)  // device 3, function 1
                       .value<cl_uint>(0x400A, 2);              // domain
  const auto list = list_scripted({.platforms = {{"NVIDIA CUDA", "NV", {gpu}}}});
  ASSERT_TRUE(list);
  EXPECT_EQ(list->front().pci_address, "0002:1b:03.1");
  EXPECT_EQ(list->front().id, DeviceId("PCI-0002:1b:03.1"));
}

TEST(OpenclList, EqualDevicesWithoutAUuidAreNumbered) {
  std::array<cl_uchar, 16> uuid{};
  uuid[0] = 1;
  const auto made_up = scripted_gpu("Clone", "cl_khr_device_uuid").value(CL_DEVICE_UUID_KHR, uuid);
  const auto list = list_scripted(
      {.platforms = {{"Some Platform (R)", "", {scripted_gpu("Chip X"), scripted_gpu("Chip X"), made_up, made_up}}}});
  ASSERT_TRUE(list);
  ASSERT_EQ(list->size(), 4U);
  EXPECT_EQ((*list)[0].id, DeviceId("gpu-opencl-0"));
  EXPECT_EQ((*list)[1].id, DeviceId("gpu-opencl-1"));
  EXPECT_EQ((*list)[2].id, DeviceId("GPU-01000000-0000-0000-0000-000000000000"));
  EXPECT_EQ((*list)[3].id, DeviceId("gpu-opencl-2"));
  // As earlier versions named them.
  EXPECT_EQ((*list)[0].former_id, DeviceId("opencl/some-platform-r/chip-x.0"));
  EXPECT_EQ((*list)[1].former_id, DeviceId("opencl/some-platform-r/chip-x.1"));
  EXPECT_EQ((*list)[2].former_id, std::nullopt);
  EXPECT_EQ((*list)[3].former_id, DeviceId("opencl/some-platform-r/clone.0"));
}

// What a processor is called varies from machine to machine; the id must not.
TEST(OpenclList, TheIdOfAProcessorIsShortWhateverItsNameIs) {
  const auto named = [](const std::string& name) {
    return scripted_gpu(name).value<cl_device_type>(CL_DEVICE_TYPE, CL_DEVICE_TYPE_CPU);
  };
  const std::string longest = "basic-skylake-avx512-Intel(R) Xeon(R) Processor @ 2.80GHz " + std::string(200, 'x');
  for (const std::string& name : {std::string("c"), std::string("basic-neoverse-v1"), longest}) {
    const auto list = list_scripted({.platforms = {{"Portable", "POCL", {named(name), named(name), named("other")}}}});
    ASSERT_TRUE(list);
    ASSERT_EQ(list->size(), 3U);
    for (int i = 0; i < 3; ++i) {
      const DeviceInfo& info = (*list)[static_cast<std::size_t>(i)];
      EXPECT_EQ(info.id, DeviceId("cpu-opencl-" + std::to_string(i)));
      EXPECT_EQ(info.fault_domain, info.id.text());
    }
  }
  const auto list = list_scripted({.platforms = {{"P", "POCL", {named("basic-skylake-avx512-Intel(R) Xeon(R)")}}}});
  EXPECT_EQ(list->front().former_id, DeviceId("opencl/pocl/basic-skylake-avx512-intel-r-xeon-r.0"));
}

TEST(OpenclList, IdsDoNotDependOnTheOrderOfThePlatforms) {
  const auto cpu = [](const std::string& name) {
    return scripted_gpu(name).value<cl_device_type>(CL_DEVICE_TYPE, CL_DEVICE_TYPE_CPU);
  };
  const ScriptedPlatform intel{"Intel", "INTEL", {cpu("i"), scripted_gpu("i gpu")}}, pocl{"P", "POCL", {cpu("p")}};
  const auto ids = [](const std::vector<ScriptedPlatform>& platforms) {
    std::map<std::string, std::string> by_name;
    const auto list = list_scripted({.platforms = platforms});
    for (const DeviceInfo& info : *list) by_name[info.name] = info.id.text();
    return by_name;
  };
  const std::map<std::string, std::string> expected = {
      {"i", "cpu-opencl-0"}, {"i gpu", "gpu-opencl-0"}, {"p", "cpu-opencl-1"}};
  EXPECT_EQ(ids({intel, pocl}), expected);
  EXPECT_EQ(ids({pocl, intel}), expected);
  // Two installations of one driver differ in their versions.
  ScriptedPlatform older{"P", "POCL", {cpu("old")}}, newer{"P", "POCL", {cpu("new")}};
  older.version = "OpenCL 3.0 PoCL 3.1";
  newer.version = "OpenCL 3.0 PoCL 6.0";
  EXPECT_EQ(ids({older, newer}), ids({newer, older}));
}

TEST(OpenclList, AFormerIdNamesTheDeviceThatIsToBeCut) {
  Script wanted{.platforms = {{"P", "X", {scripted_gpu("Chip")}}}};
  script = &wanted;
  const Api api = scripted_api();
  const auto parts = find_devices(api, std::vector<PartitionRequest>{{"opencl:opencl/x/chip.0", {4, 8}}});
  ASSERT_FALSE(parts) << "the scripted device cannot be cut";
  EXPECT_EQ(parts.error().where, "gpu-opencl-0");
}

TEST(OpenclList, ValuesThatTheDriverDoesNotReportAreAbsentNotZero) {
  const auto mute = ScriptedDevice().value<cl_device_type>(CL_DEVICE_TYPE, CL_DEVICE_TYPE_GPU);
  const auto list = list_scripted({.platforms = {{"P", "P", {mute}}}});
  ASSERT_TRUE(list);
  const DeviceInfo& info = list->front();
  EXPECT_EQ(info.id, DeviceId("gpu-opencl-0"));
  EXPECT_FALSE(info.memory_bytes_total);
  EXPECT_FALSE(info.compute_units);
  EXPECT_FALSE(info.capability);
  EXPECT_FALSE(info.pci_address);
  EXPECT_TRUE(info.features.empty());
}

TEST(OpenclList, AProcessorIsAFallbackAndSharesTheHostMemory) {
  const auto cpu = scripted_gpu("cpu").value<cl_device_type>(CL_DEVICE_TYPE, CL_DEVICE_TYPE_CPU);
  const auto list = list_scripted({.platforms = {{"P", "P", {cpu}}}});
  ASSERT_TRUE(list);
  EXPECT_TRUE(list->front().is_fallback);
  EXPECT_EQ(list->front().memory_domain, "host");
  EXPECT_EQ(list->front().concurrency, 1U);
}

TEST(OpenclList, AMisspeltPoclDeviceDoesNotHideOtherPlatforms) {
  const char* before = std::getenv("POCL_DEVICES");
  const std::string kept = before ? before : "";
  setenv("POCL_DEVICES", "bsaic", /*overwrite=*/1);
  const auto list = list_scripted({CL_SUCCESS,
                                   {{"Portable Computing Language", "POCL", {scripted_gpu("never asked")}, CL_SUCCESS},
                                    {"Other", "OTHER", {scripted_gpu("other")}, CL_SUCCESS}}});
  setenv("POCL_DEVICES", kept.c_str(), /*overwrite=*/1);
  ASSERT_TRUE(list);
  ASSERT_EQ(list->size(), 1U);
  EXPECT_EQ(list->front().name, "other");
}

}  // namespace
}  // namespace berth::opencl
