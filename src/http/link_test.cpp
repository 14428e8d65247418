#include "http/link.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "http/running_server.hpp"

namespace berth::http::test {
namespace {

TEST(Link, TheLinesOfAHeadEndAsTheyMust) {
  EXPECT_TRUE(has_plain_lines("GET / HTTP/1.1\r\nHost: a\r\nX: b\tc \xc3\xa4\r\n\r\n"));
  EXPECT_TRUE(has_plain_lines("GET / HTTP/1.1\r")) << "the line feed may follow";
  for (const std::string_view bad : std::initializer_list<std::string_view>{
           "GET / HTTP/1.1\n", "GET / HTTP/1.1\r\nA: b\nC: d\r\n", "A\rB", "\nGET", "A: b\r\n c\r\n", "A: b\r\n\tc\r\n",
           std::string_view("A: b\0c\r\n", 8), "A: b\x01\r\n"})
    EXPECT_FALSE(has_plain_lines(bad)) << bad;
}

TEST(Link, WhatWasLookedAtIsNotLookedAtAgainAndMissesNothing) {
  const std::string head = "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n";
  for (std::size_t seen = 0; seen <= head.find("\n c"); ++seen) EXPECT_FALSE(has_plain_lines(head, seen)) << seen;
  EXPECT_FALSE(has_plain_lines("A\rB", 2)) << "the byte after the carriage return was not checked before";
}

TEST(Link, RequestsWithTwoReadingsAreNotPassedOn) {
  std::atomic<int> passed = 0;
  RunningServer server(Server::Proxy([&](Link& link, Head&, const Peer&) -> Async<bool> {
                         ++passed;
                         co_await link.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
                         co_return false;
                       }),
                       {.serves_page = false, .limits = {.header_time = 500ms}});
  const std::string begin = "POST / HTTP/1.1\r\nHost: a\r\n";
  for (const std::string& bad : {
           begin + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
           begin + "Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
           begin + "Content-Length: 4, 4\r\n\r\nabcd",
           begin + "Content-Length: +4\r\n\r\nabcd",
           begin + "Content-Length: 0x4\r\n\r\nabcd",
           begin + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
           begin + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
           begin + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
           begin + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
           begin + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
           begin + "X: y\n\r\nContent-Length: 4\r\n\r\nabcd",
           begin + "Host: b\r\n\r\n",
           std::string("GET /../a HTTP/1.1\r\nHost: a\r\n\r\n"),
           std::string("GET /%2e%2e/a HTTP/1.1\r\nHost: a\r\n\r\n"),
           std::string("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n"),
           std::string("GET / HTTP/1.0\r\nHost: a\r\n\r\n"),
           std::string("GET  / HTTP/1.1\r\nHost: a\r\n\r\n"),
           std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
           begin + "X: " + std::string(20'000, 'x') + "\r\n\r\n",
       }) {
    RawConnection connection(server.address());
    connection.send(bad);
    const std::string answer = connection.read_all(2s);
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 4") || answer.starts_with("HTTP/1.1 5")) << bad << '\n' << answer;
  }
  EXPECT_EQ(passed, 0);
}

TEST(Link, AClientThatIsStillSendingGetsTheAnswerOfAProxyThatDoesNotWantTheRest) {
  RunningServer server(Server::Proxy([](Link& link, Head&, const Peer&) -> Async<bool> {
                         co_await link.write("HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n");
                         co_return false;
                       }),
                       {.serves_page = false});
  RawConnection connection(server.address());
  connection.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n");
  EXPECT_EQ(connection.read_until("\r\n\r\n").substr(0, 12), "HTTP/1.1 413");
  server.on_thread([] {});  // the server has noticed that the answer is written
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(connection.send(std::string(10'000, 'x'))) << "no reset";
  connection.send_until_full(5'000'000);
  EXPECT_TRUE(eventually([&] { return server.connections() == 0; })) << "but not forever";
}

}  // namespace
}  // namespace berth::http::test
