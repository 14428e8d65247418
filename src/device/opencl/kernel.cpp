#include "device/opencl/kernel.hpp"

namespace berth::opencl {

Result<void> OpenclKernel::prepare() {
  Result<Owned<cl_kernel>> first = borrow();
  if (!first) return std::move(first).error();
  const Api& api = device_->api();
  cl_uint count = 0;
  const cl_int code = api.clGetKernelInfo(first->get(), CL_KERNEL_NUM_ARGS, sizeof count, &count, nullptr);
  if (code != CL_SUCCESS) return device_->failed(code, "the arguments of kernel '" + entry_ + "' could not be counted");
  for (cl_uint i = 0; i < count; ++i) {
    cl_kernel_arg_address_qualifier space = 0;
    if (api.clGetKernelArgInfo(first->get(), i, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof space, &space, nullptr) !=
        CL_SUCCESS) {
      space = 0;
    }
    takes_.push_back(space == CL_KERNEL_ARG_ADDRESS_GLOBAL || space == CL_KERNEL_ARG_ADDRESS_CONSTANT ? Takes::buffer
                     : space == CL_KERNEL_ARG_ADDRESS_PRIVATE                                         ? Takes::value
                     : space == CL_KERNEL_ARG_ADDRESS_LOCAL                                           ? Takes::local
                                                            : Takes::anything);
  }
  give_back(*std::move(first));
  return {};
}

Result<void> OpenclKernel::check(std::span<const Argument> arguments) const {
  const auto refused = [&](std::size_t i, const char* why) {
    return device_->refused("argument " + std::to_string(i) + " of kernel '" + entry_ + "' " + why);
  };
  if (arguments.size() != takes_.size()) {
    return device_->refused("kernel '" + entry_ + "' takes " + std::to_string(takes_.size()) +
                            " arguments, but was given " + std::to_string(arguments.size()));
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (takes_[i] == Takes::local) return refused(i, "is local memory, which is not supported");
    if (arguments[i].is_buffer()) {
      if (takes_[i] == Takes::value) return refused(i, "must be a value, but is a buffer");
      if (Result<void> usable = device_->check(arguments[i].buffer()); !usable) return usable;
    } else if (takes_[i] == Takes::buffer) {
      return refused(i, "must be a buffer, but is a value");
    }
  }
  return {};
}

Result<Owned<cl_kernel>> OpenclKernel::borrow() const {
  {
    const std::lock_guard guard(mutex_);
    if (!idle_.empty()) {
      Owned<cl_kernel> kernel = std::move(idle_.back());
      idle_.pop_back();
      return kernel;
    }
  }
  cl_int code = CL_SUCCESS;
  cl_kernel kernel = device_->api().clCreateKernel(program_.get(), entry_.c_str(), &code);
  if (code != CL_SUCCESS) return device_->failed(code, "there is no kernel '" + entry_ + "' in the program");
  return Owned<cl_kernel>(kernel, device_->api().clReleaseKernel);
}

}  // namespace berth::opencl
