#include "device/opencl/errors.hpp"

#include <gtest/gtest.h>

#include "device/opencl/api.hpp"
// After the table of functions, which chooses the version of the headers.
#include <CL/cl_egl.h>
#include <CL/cl_gl.h>

namespace berth::opencl {
namespace {

#define ROW(name) {name, #name}
constexpr std::pair<int, std::string_view> header_rows[] = {
    ROW(CL_DEVICE_NOT_FOUND),
    ROW(CL_DEVICE_NOT_AVAILABLE),
    ROW(CL_COMPILER_NOT_AVAILABLE),
    ROW(CL_MEM_OBJECT_ALLOCATION_FAILURE),
    ROW(CL_OUT_OF_RESOURCES),
    ROW(CL_OUT_OF_HOST_MEMORY),
    ROW(CL_PROFILING_INFO_NOT_AVAILABLE),
    ROW(CL_MEM_COPY_OVERLAP),
    ROW(CL_IMAGE_FORMAT_MISMATCH),
    ROW(CL_IMAGE_FORMAT_NOT_SUPPORTED),
    ROW(CL_BUILD_PROGRAM_FAILURE),
    ROW(CL_MAP_FAILURE),
    ROW(CL_MISALIGNED_SUB_BUFFER_OFFSET),
    ROW(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST),
    ROW(CL_COMPILE_PROGRAM_FAILURE),
    ROW(CL_LINKER_NOT_AVAILABLE),
    ROW(CL_LINK_PROGRAM_FAILURE),
    ROW(CL_DEVICE_PARTITION_FAILED),
    ROW(CL_KERNEL_ARG_INFO_NOT_AVAILABLE),
    ROW(CL_INVALID_VALUE),
    ROW(CL_INVALID_DEVICE_TYPE),
    ROW(CL_INVALID_PLATFORM),
    ROW(CL_INVALID_DEVICE),
    ROW(CL_INVALID_CONTEXT),
    ROW(CL_INVALID_QUEUE_PROPERTIES),
    ROW(CL_INVALID_COMMAND_QUEUE),
    ROW(CL_INVALID_HOST_PTR),
    ROW(CL_INVALID_MEM_OBJECT),
    ROW(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR),
    ROW(CL_INVALID_IMAGE_SIZE),
    ROW(CL_INVALID_SAMPLER),
    ROW(CL_INVALID_BINARY),
    ROW(CL_INVALID_BUILD_OPTIONS),
    ROW(CL_INVALID_PROGRAM),
    ROW(CL_INVALID_PROGRAM_EXECUTABLE),
    ROW(CL_INVALID_KERNEL_NAME),
    ROW(CL_INVALID_KERNEL_DEFINITION),
    ROW(CL_INVALID_KERNEL),
    ROW(CL_INVALID_ARG_INDEX),
    ROW(CL_INVALID_ARG_VALUE),
    ROW(CL_INVALID_ARG_SIZE),
    ROW(CL_INVALID_KERNEL_ARGS),
    ROW(CL_INVALID_WORK_DIMENSION),
    ROW(CL_INVALID_WORK_GROUP_SIZE),
    ROW(CL_INVALID_WORK_ITEM_SIZE),
    ROW(CL_INVALID_GLOBAL_OFFSET),
    ROW(CL_INVALID_EVENT_WAIT_LIST),
    ROW(CL_INVALID_EVENT),
    ROW(CL_INVALID_OPERATION),
    ROW(CL_INVALID_GL_OBJECT),
    ROW(CL_INVALID_BUFFER_SIZE),
    ROW(CL_INVALID_MIP_LEVEL),
    ROW(CL_INVALID_GLOBAL_WORK_SIZE),
    ROW(CL_INVALID_PROPERTY),
    ROW(CL_INVALID_IMAGE_DESCRIPTOR),
    ROW(CL_INVALID_COMPILER_OPTIONS),
    ROW(CL_INVALID_LINKER_OPTIONS),
    ROW(CL_INVALID_DEVICE_PARTITION_COUNT),
    ROW(CL_INVALID_PIPE_SIZE),
    ROW(CL_INVALID_DEVICE_QUEUE),
    ROW(CL_INVALID_SPEC_ID),
    ROW(CL_MAX_SIZE_RESTRICTION_EXCEEDED),
    ROW(CL_INVALID_GL_SHAREGROUP_REFERENCE_KHR),
    ROW(CL_PLATFORM_NOT_FOUND_KHR),
    ROW(CL_DEVICE_PARTITION_FAILED_EXT),
    ROW(CL_INVALID_PARTITION_COUNT_EXT),
    ROW(CL_INVALID_PARTITION_NAME_EXT),
    ROW(CL_EGL_RESOURCE_NOT_ACQUIRED_KHR),
    ROW(CL_INVALID_EGL_OBJECT_KHR),
    ROW(CL_INVALID_ACCELERATOR_INTEL),
    ROW(CL_INVALID_ACCELERATOR_TYPE_INTEL),
    ROW(CL_INVALID_ACCELERATOR_DESCRIPTOR_INTEL),
    ROW(CL_ACCELERATOR_TYPE_NOT_SUPPORTED_INTEL),
    ROW(CL_COMMAND_TERMINATED_ITSELF_WITH_FAILURE_ARM),
    ROW(CL_CONTEXT_TERMINATED_KHR),
};
#undef ROW

TEST(OpenclErrors, TheTableAgreesWithTheHeaders) {
  for (const auto& [code, name] : header_rows) {
    const ErrorRow* row = find_error(code);
    ASSERT_NE(row, nullptr) << name;
    EXPECT_EQ(row->name, name);
  }
}

TEST(OpenclErrors, EveryRowIsFoundByItsCodeAndByItsName) {
  int before = 0;
  for (const ErrorRow& row : error_table()) {
    EXPECT_LT(row.code, before) << row.name;
    before = row.code;
    EXPECT_EQ(find_error(row.code), &row);
    EXPECT_EQ(find_error(row.name), &row);
  }
  EXPECT_EQ(find_error(0), nullptr);
  EXPECT_EQ(find_error("CL_SUCCESS"), nullptr);
}

TEST(OpenclErrors, CodesHaveTheRightReaction) {
  const auto class_of = [](int code) { return error_of(code, "it failed").code; };
  EXPECT_EQ(class_of(CL_MEM_OBJECT_ALLOCATION_FAILURE), ErrorCode::out_of_memory);
  EXPECT_EQ(class_of(CL_OUT_OF_RESOURCES), ErrorCode::out_of_memory);
  EXPECT_EQ(class_of(CL_OUT_OF_HOST_MEMORY), ErrorCode::out_of_memory);
  EXPECT_EQ(class_of(CL_DEVICE_NOT_AVAILABLE), ErrorCode::unavailable);
  EXPECT_EQ(class_of(CL_BUILD_PROGRAM_FAILURE), ErrorCode::invalid_argument);
  EXPECT_EQ(class_of(CL_INVALID_KERNEL_NAME), ErrorCode::not_found);
  EXPECT_EQ(class_of(CL_INVALID_WORK_GROUP_SIZE), ErrorCode::invalid_argument);
  EXPECT_EQ(class_of(CL_CONTEXT_TERMINATED_KHR), ErrorCode::device_lost);
  EXPECT_EQ(class_of(CL_INVALID_COMMAND_QUEUE), ErrorCode::device_lost);
  EXPECT_EQ(class_of(-9999), ErrorCode::device_lost) << "NVIDIA's driver returns it after a kernel's illegal address";
  EXPECT_EQ(class_of(CL_DEVICE_NOT_FOUND), ErrorCode::no_device);
  EXPECT_EQ(class_of(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST), ErrorCode::work_failed);
}

TEST(OpenclErrors, TheErrorHasTheDeviceAndTheDriversCode) {
  const Error error = error_of(CL_OUT_OF_RESOURCES, "the kernel could not be enqueued", "cpu-opencl-0");
  EXPECT_EQ(error.to_text(),
            "the kernel could not be enqueued (CL_OUT_OF_RESOURCES, code -5) on cpu-opencl-0; "
            "free buffers of this device, or ask for less");
}

TEST(OpenclErrors, AnUnknownCodeKeepsItsNumberAndIsNotRetried) {
  const Error error = error_of(-31337, "it failed");
  EXPECT_EQ(error.code, ErrorCode::work_failed);
  EXPECT_EQ(error.reaction(), Reaction::give_up);
  ASSERT_TRUE(error.driver);
  EXPECT_EQ(error.driver->code, -31337);
}

}  // namespace
}  // namespace berth::opencl
