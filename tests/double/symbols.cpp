#include "symbols.hpp"

namespace berth {

// Their addresses: the linker refuses the object as long as one has no definition.
#define BERTH_DOUBLE_LIST(symbol, ...) reinterpret_cast<void (*)()>(&symbol),
namespace cuda {
extern void (*const symbols_of_the_driver[])();
void (*const symbols_of_the_driver[])() = {BERTH_CUDA_REQUIRED(BERTH_DOUBLE_LIST) BERTH_CUDA_OPTIONAL(BERTH_DOUBLE_LIST)
                                               BERTH_DOUBLE_TESTED(BERTH_DOUBLE_LIST)};
}  // namespace cuda
namespace nvml {
extern void (*const symbols_of_the_library[])();
void (*const symbols_of_the_library[])() = {BERTH_NVML_REQUIRED(BERTH_DOUBLE_LIST)
                                                BERTH_NVML_OPTIONAL(BERTH_DOUBLE_LIST)};
}  // namespace nvml

}  // namespace berth
