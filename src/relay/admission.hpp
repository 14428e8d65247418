// How many requests each replica of a node has, and whether it takes one more. Every request to a replica passes here,
// whichever gateway sends it, so that no gateway needs to know of the others. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace berth::relay {

// One incarnation of a replica that runs here.
struct Target {
  std::string name;     // "chat/0#17"
  std::string address;  // "unix:/run/.../socket" or "http://127.0.0.1:40001"
  std::uint32_t concurrent_max = 1;
  bool is_draining = false;               // takes no new requests; those in flight go on
  std::string job = {};                   // the folder of its job, by which it is known whose socket it is
  std::uint32_t in_flight_elsewhere = 0;  // at a relay that this one has replaced
  friend bool operator==(const Target&, const Target&) = default;
};

class Admission {
 public:
  // All targets of the node. What is in flight to one that is not listed any more still counts until it ends.
  void set(std::vector<Target> targets);

  enum class Answer : std::uint8_t { admitted, unknown, draining, full };
  // Counts the request if it is admitted; then end() follows once.
  Answer admit(std::string_view name);
  void end(std::string_view name);

  struct Load {
    std::uint32_t in_flight = 0, concurrent_max = 0;
  };
  Load load(std::string_view name) const;
  // Null: not listed.
  const Target* find(std::string_view name) const;
  // With those that are not listed any more and have requests in flight.
  std::map<std::string, std::uint32_t> in_flight() const;

 private:
  struct Entry {
    Target target;
    bool is_listed = false;
    std::uint32_t in_flight = 0;
  };
  std::map<std::string, Entry, std::less<>> entries_;
};

// "full"; what a relay tells the gateway of a request that it has not begun.
std::string_view to_string(Admission::Answer answer) noexcept;

}  // namespace berth::relay
