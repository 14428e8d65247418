#include "http/request_checks.hpp"

#include <gtest/gtest.h>

#include "http/client.hpp"

namespace berth::http {
namespace {

TEST(RequestChecks, DecodesPathAndQuery) {
  Request request;
  ASSERT_TRUE(set_target(request, "/a%2Fb/c+d/?x=1&y=a+b%26&x=2&flag&=v"));
  EXPECT_EQ(request.path, "/a/b/c+d/");
  EXPECT_EQ(request.segments, (std::vector<std::string>{"a/b", "c+d"}));
  EXPECT_EQ(request.query, (decltype(request.query){{"", "v"}, {"flag", ""}, {"x", "2"}, {"y", "a b&"}}));
  ASSERT_TRUE(set_target(request, "/"));
  EXPECT_EQ(request.path, "/");
  EXPECT_TRUE(request.segments.empty());
  EXPECT_TRUE(request.query.empty());
}

TEST(RequestChecks, WhatIsEncodedIsDecodedToTheSame) {
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  EXPECT_EQ(decoded(encoded(all), true), all);
  EXPECT_EQ(encoded("a/b c"), "a%2Fb%20c");
}

TEST(RequestChecks, RefusesMalformedTargets) {
  Request request;
  for (const char* target : {"", "x", "*", "//..", "/.", "/a/..", "/%2e", "/%", "/%1", "/%g0", "/a%0ab", "/?a=%",
                             "/a#b", "http://x/", "/a%2f..%2fb", "/..%5Ca", "/a\\..", "/a%2F."})
    EXPECT_FALSE(set_target(request, target)) << target;
  EXPECT_TRUE(set_target(request, "/..."));
}

TEST(RequestChecks, LoopbackNamesAreExact) {
  for (const char* name : {"localhost", "127.0.0.1", "127.1.2.3", "::1"}) EXPECT_TRUE(is_loopback_name(name)) << name;
  for (const char* name : {"", "localhost.evil.example", "127.0.0.1.evil.example", "127.evil.example", "127.0.0.",
                           "127..0.1", "1127.0.0.1", "0.0.0.0", "128.0.0.1", "127.a.b.c", "127.999.1.1", "127.0.0.1 "})
    EXPECT_FALSE(is_loopback_name(name)) << name;
}

TEST(RequestChecks, OwnHostsAreLoopbackTheConnectionsAddressAndTheGivenNames) {
  const std::vector<std::string> names{"Berth.Example", "2001:db8::1"};
  for (const char* host : {"localhost", "LOCALHOST:1", "127.0.0.1:9999", "[::1]:80", "berth.example:8443",
                           "berth.example.", "192.0.2.7:8443", "[2001:db8::1]"})
    EXPECT_TRUE(is_own_host(host, "192.0.2.7", names)) << host;
  for (const char* host :
       {"", ":80", "evil.example", "berth.example.evil", "192.0.2.8", "localhost:x", "localhost:80:80",
        "user@localhost", "localhost/x", "[::1", "localhost,evil.example", "evil.example localhost"})
    EXPECT_FALSE(is_own_host(host, "192.0.2.7", names)) << host;
}

TEST(RequestChecks, AnOriginIsOursIfItIsThePageOfThisHost) {
  EXPECT_TRUE(is_own_origin("http://localhost:8080", "localhost:8080", false));
  EXPECT_TRUE(is_own_origin("https://localhost:8080", "LocalHost:8080", true));
  EXPECT_TRUE(is_own_origin("https://berth.example", "berth.example", false)) << "TLS added by a proxy";
  EXPECT_FALSE(is_own_origin("http://berth.example", "berth.example", true)) << "a page that anyone can change";
  for (const char* origin : {"", "null", "http://", "http://localhost", "http://localhost:80800",
                             "http://localhost:8080.evil", "http://evil.example", "file://", "localhost:8080"})
    EXPECT_FALSE(is_own_origin(origin, "localhost:8080", false)) << origin;
}

}  // namespace
}  // namespace berth::http
