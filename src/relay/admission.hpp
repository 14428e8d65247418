// How many requests each replica of a node has, and whether it accepts one more. Every request to a replica passes
// through here, whichever gateway sends it, so that gateways need not know about each other. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace berth::relay {

// One incarnation of a replica on this node.
struct Target {
  std::string name;     // "chat/0#17"
  std::string address;  // "unix:/run/.../socket" or "http://127.0.0.1:40001"
  std::uint32_t concurrent_max = 1;
  bool is_draining = false;               // accepts no new requests; those in flight continue
  std::string job = {};                   // the folder of its job, which identifies the owner of the socket
  std::uint32_t in_flight_elsewhere = 0;  // in flight at a relay that this one has replaced
  friend bool operator==(const Target&, const Target&) = default;
};

class Admission {
 public:
  // Sets all targets of the node. Requests in flight to one that is no longer listed count until they end.
  void set(std::vector<Target> targets);

  enum class Answer : std::uint8_t { admitted, unknown, draining, full };
  // Counts the request if it is admitted; then end() must be called once.
  Answer admit(std::string_view name);
  void end(std::string_view name);

  struct Load {
    std::uint32_t in_flight = 0, concurrent_max = 0;
  };
  Load load(std::string_view name) const;
  // Returns null if the target is not listed.
  const Target* find(std::string_view name) const;
  // Requests in flight by target, including targets that are no longer listed.
  std::map<std::string, std::uint32_t> in_flight() const;

 private:
  struct Entry {
    Target target;
    bool is_listed = false;
    std::uint32_t in_flight = 0;
  };
  std::map<std::string, Entry, std::less<>> entries_;
};

// A word such as "full" for the gateway: why the relay has not started a request.
std::string_view to_string(Admission::Answer answer) noexcept;

}  // namespace berth::relay
