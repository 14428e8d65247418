// Result<T>: a value, or the Error that says why there is none. Member names follow
// std::expected (C++23); value() stops the program instead of throwing. Exceptions never cross
// a public function of Berth.
#pragma once

#include "berth/version.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "berth/assert.hpp"

namespace berth {

enum class ErrorCode {
  invalid_argument,    // the call is wrong
  not_found,           // the call names something that does not exist
  already_exists,      // the call names something that already exists
  not_supported,       // valid, but not on this device or in this build
  not_initialized,     // a driver library is missing or did not start
  no_device,           // the machine has no such device at all
  no_eligible_device,  // devices exist, but none can take this request now
  out_of_memory,       // device or host memory is exhausted
  unavailable,         // a temporary fault: device busy, link down, resource held elsewhere
  queue_full,          // a bounded queue refused the work
  timeout,             // a deadline passed
  cancelled,           // the caller, or a shutdown, withdrew the work
  stale_handle,        // the handle belongs to an earlier generation of its device
  device_lost,         // this process can no longer use the device
  work_failed,         // the work ran and reported failure
  worker_lost,         // the process that ran the work ended before the work did
  poison_task,         // two such processes ended while they ran this work
  io,                  // a file or socket failed
  internal,            // a bug in Berth that does not require stopping the program
};

// What a caller can do about an error.
enum class Reaction { fix_the_call, retry, wait, restart_process, give_up };

std::string_view to_string(ErrorCode code) noexcept;
std::string_view to_string(Reaction reaction) noexcept;
Reaction reaction_to(ErrorCode code) noexcept;

// The driver's own error, kept next to Berth's.
struct DriverError {
  int code = 0;
  std::string name;  // e.g. "CUDA_ERROR_ILLEGAL_ADDRESS"
  bool operator==(const DriverError&) const = default;
};

struct Explanation;  // placement.hpp

// An explanation, or null. Copies share the same explanation. Not a std::shared_ptr, because <memory> would
// double the size of this header.
class SharedExplanation {
 public:
  SharedExplanation() = default;
  explicit SharedExplanation(Explanation explanation);
  SharedExplanation(const SharedExplanation& other) noexcept;
  SharedExplanation(SharedExplanation&& other) noexcept : shared_(std::exchange(other.shared_, nullptr)) {}
  SharedExplanation& operator=(SharedExplanation other) noexcept {
    std::swap(shared_, other.shared_);
    return *this;
  }
  ~SharedExplanation();

  explicit operator bool() const noexcept { return shared_ != nullptr; }
  const Explanation* get() const noexcept;
  const Explanation& operator*() const noexcept { return *get(); }
  const Explanation* operator->() const noexcept { return get(); }

  struct Shared;  // src/world/shared_explanation.hpp

 private:
  Shared* shared_ = nullptr;
};

struct [[nodiscard]] Error {
  ErrorCode code = ErrorCode::internal;
  std::string message = {};                // one sentence: what is wrong
  std::string advice = {};                 // one sentence: what to do; may be empty
  std::string where = {};                  // id of the device or node concerned; may be empty
  std::optional<DriverError> driver = {};  // absent where no driver was involved
  // For a refused request: what excludes each device. Otherwise null.
  SharedExplanation explanation = {};

  // "message (driver name, code) on device; advice", for people.
  std::string to_text() const;
  Reaction reaction() const noexcept { return reaction_to(code); }
  friend bool operator==(const Error& a, const Error& b) {
    return a.code == b.code && a.message == b.message && a.advice == b.advice && a.where == b.where &&
           a.driver == b.driver;
  }
};

namespace detail {
// Prints the error and stops the program: the caller read a value that does not exist.
[[noreturn]] void value_of_error(const Error& error) noexcept;
}  // namespace detail

// The value of a Result; if it has none, returns the error from the enclosing function:
//   const Buffer buffer = BERTH_TRY(device.allocate(size));
#define BERTH_TRY(result)                                                \
  __extension__({                                                        \
    auto berth_tried = (result);                                         \
    if (!berth_tried.has_value()) return std::move(berth_tried).error(); \
    std::move(berth_tried).value();                                      \
  })

template <class T>
class [[nodiscard]] Result {
 public:
  using value_type = T;
  using error_type = Error;

  Result(T value) : value_(std::in_place, std::move(value)) {}
  Result(Error error) : error_(std::move(error)) {}
  template <class... Arguments>
  explicit Result(std::in_place_t, Arguments&&... arguments)
      : value_(std::in_place, std::forward<Arguments>(arguments)...) {}

  bool has_value() const noexcept { return value_.has_value(); }
  explicit operator bool() const noexcept { return has_value(); }

  // value(), * and -> stop the program with the error's text if there is no value; error()
  // asserts that there is none.
  T& value() & { return *checked(); }
  const T& value() const& { return *checked(); }
  T&& value() && { return std::move(*checked()); }
  T& operator*() & { return *checked(); }
  const T& operator*() const& { return *checked(); }
  T&& operator*() && { return std::move(*checked()); }
  T* operator->() { return checked(); }
  const T* operator->() const { return checked(); }

  const Error& error() const& {
    BERTH_ASSERT(!has_value());
    return *error_;
  }
  Error&& error() && {
    BERTH_ASSERT(!has_value());
    return *std::move(error_);
  }

  template <class U>
  T value_or(U&& other) const& {
    return has_value() ? *value_ : static_cast<T>(std::forward<U>(other));
  }
  template <class U>
  T value_or(U&& other) && {
    return has_value() ? *std::move(value_) : static_cast<T>(std::forward<U>(other));
  }

  // and_then: f(T) -> Result<U>. transform: f(T) -> U. transform_error: f(Error) -> Error.
  template <class F>
  auto and_then(F&& f) && -> std::invoke_result_t<F, T&&> {
    if (!has_value()) return *std::move(error_);
    return std::forward<F>(f)(*std::move(value_));
  }
  template <class F>
  auto transform(F&& f) && -> Result<std::invoke_result_t<F, T&&>> {
    if (!has_value()) return *std::move(error_);
    return std::forward<F>(f)(*std::move(value_));
  }
  template <class F>
  Result transform_error(F&& f) && {
    if (has_value()) return std::move(*this);
    return std::forward<F>(f)(*std::move(error_));
  }

 private:
  T* checked() {
    if (!has_value()) detail::value_of_error(*error_);
    return &*value_;
  }
  const T* checked() const {
    if (!has_value()) detail::value_of_error(*error_);
    return &*value_;
  }
  // Exactly one of them is present.
  std::optional<T> value_;
  std::optional<Error> error_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;
  using error_type = Error;

  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool has_value() const noexcept { return !error_.has_value(); }
  explicit operator bool() const noexcept { return has_value(); }
  void value() const {
    if (!has_value()) detail::value_of_error(*error_);
  }
  const Error& error() const& {
    BERTH_ASSERT(!has_value());
    return *error_;
  }
  Error&& error() && {
    BERTH_ASSERT(!has_value());
    return *std::move(error_);
  }
  template <class F>
  auto and_then(F&& f) && -> std::invoke_result_t<F> {
    if (!has_value()) return *std::move(error_);
    return std::forward<F>(f)();
  }

 private:
  std::optional<Error> error_;
};

}  // namespace berth
