// Which replica has which keys, for people.
#pragma once

#include <boost/json/object.hpp>
#include <string>

#include "berth/result.hpp"
#include "cli/text/terminal.hpp"

namespace berth::cli {

std::string shards_text(const boost::json::object& answer, const Style& style);

// Where one key belongs, computed from the answer of /api/v1/shards, so that the key itself is not sent.
struct KeyPlace {
  std::string deployment, affinity;
  std::uint32_t shard = 0;
  struct Replica {
    std::string name;
    std::string state;  // empty: it is not serving yet
  };
  std::string on_capacity_exhausted, fallback;
  std::vector<Replica> order;  // the owner of the key, then the fallbacks in order
};
// `deployment` may be empty if only one deployment has keys. not_found: there is no such deployment with keys.
Result<KeyPlace> place_of_key(const boost::json::object& answer, const std::string& deployment, std::string_view key);
std::string key_place_text(const KeyPlace& place, const Style& style);
boost::json::object to_json(const KeyPlace& place);

}  // namespace berth::cli
