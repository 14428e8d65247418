#include "cli/text/spec_text.hpp"

#include <boost/json.hpp>

#include "cli/text/test_text.hpp"

namespace berth::cli {
namespace {

namespace json = boost::json;

std::string text_of(std::string_view spec) { return spec_text(json::parse(spec).as_object(), {}); }

TEST(SpecText, NamesAndValuesAreThoseOfTheProjectFile) {
  EXPECT_EQ(text_of(R"({"name":"chat","replicas":4,"memory_bytes":268435456,"unready_within_s":300,"stop_grace_s":90,
              "cpus":2.5,"command":["serve","{port}"],"readiness":{"http":"/health","every_s":0.5,"timeout_s":150},
              "serving":{"queue_timeout_s":7200,"key":"header:x"}})"),
            "  replicas        4\n"
            "  memory          256.0 MiB\n"
            "  unready_within  5 min\n"
            "  stop_grace      90 s\n"
            "  cpus            2.5\n"
            "  command         [\"serve\",\"{port}\"]\n"
            "  readiness       http = /health, every = 500 ms, timeout = 150 s\n"
            "  serving         queue_timeout = 2 h, key = header:x\n");
}

TEST(SpecText, WhatThisVersionDoesNotKnowIsShownAsItIs) {
  EXPECT_EQ(text_of(R"({"of_a_newer_version_s":3,"stop_grace_s":"soon","memory_bytes":"much","serving":[1]})"),
            "  of_a_newer_version_s 3\n"
            "  stop_grace      soon\n"
            "  memory          much\n"
            "  serving         [1]\n");
}

}  // namespace
}  // namespace berth::cli
