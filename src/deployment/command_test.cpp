#include "deployment/command.hpp"

#include <gtest/gtest.h>

namespace berth::deployment {
namespace {

std::string expanded(const std::string& argument) {
  const Placeholders values{8123, 2, 21474836480, 0.14189, "chat", 3, "/run/s"};
  return expand(std::vector{argument}, values).at(0);
}

TEST(Command, EveryPlaceholderIsReplaced) {
  EXPECT_EQ(expanded("--port={port}"), "--port=8123");
  EXPECT_EQ(expanded("unix:{socket}"), "unix:/run/s");
  EXPECT_EQ(expanded("--host={address}"), "--host=127.0.0.1");
  EXPECT_EQ(expanded("{gpus}"), "2");
  EXPECT_EQ(expanded("{memory_bytes}"), "21474836480");
  EXPECT_EQ(expanded("{memory_fraction}"), "0.1418") << "rounded down: never more than was promised";
  EXPECT_EQ(expanded("{name}-{replica}"), "chat-3");
  EXPECT_EQ(expanded("{port}{port}"), "81238123");
  EXPECT_EQ(expand(std::vector<std::string>{"a", "", "{replica}"}, {}), (std::vector<std::string>{"a", "", "0"}));
}

TEST(Command, OtherBracesStayAsTheyAre) {
  for (const std::string text :
       {"", "{", "}", "{}", "${HOME}", R"({"a": {"b": 1}})", "{Port}", "{ port }", "{port", "port}", "{1}"})
    EXPECT_EQ(expanded(text), text);
  EXPECT_EQ(expanded("{{port}"), "{port}");
  EXPECT_EQ(expanded("{{{port}}"), "{8123}");
  EXPECT_EQ(expanded("awk {{print}"), "awk {print}");
  EXPECT_EQ(expanded("{prt}"), "{prt}") << "validate() refuses it";
}

TEST(Command, ValuesAreNotExpandedAgain) {
  Placeholders values;
  values.name = "{port}";
  EXPECT_EQ(expand(std::vector<std::string>{"{name}"}, values).at(0), "{port}");
}

TEST(Command, UnknownAndUsedPlaceholdersAreFound) {
  const std::vector<std::string> command{"serve", "--port", "{port}", "{{gpus}", "{gpu}"};
  EXPECT_TRUE(uses_placeholder(command, "port"));
  EXPECT_FALSE(uses_placeholder(command, "gpus")) << "{{ is a brace itself";
  EXPECT_EQ(unknown_placeholder(command), "gpu");
  EXPECT_EQ(unknown_placeholder(std::vector<std::string>{"{port} {HOME} {{x}"}), std::nullopt);
}

}  // namespace
}  // namespace berth::deployment
