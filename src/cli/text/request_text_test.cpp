#include "cli/text/request_text.hpp"

#include <boost/json.hpp>

#include "cli/text/endpoints_text.hpp"
#include "cli/text/test_text.hpp"

namespace berth::cli {
namespace {

boost::json::object parsed(std::string_view text) { return boost::json::parse(text).get_object(); }

TEST(RequestText, SaysWhatHappenedInSentencesAndWhichReplicasWereTried) {
  const auto answer =
      parsed(R"({"schema":1,"requests":[{"id":"3f2a","at_ms":1794873600000,"gateway":"head","caller":"t7",
    "deployment":"chat","outcome":"answered","status":200,"waited_us":800000,"total_us":1234000,"first_byte_us":1100000,
    "policy":"least_loaded","candidates":[{"replica":"chat/0#1","verdict":"winner","in_flight":0,"max_concurrent":8},
    {"replica":"chat/2#3","verdict":"runner_up","in_flight":1,"max_concurrent":8},
    {"replica":"chat/1#2","verdict":"tried","in_flight":8,"max_concurrent":8}],"tries":2,
    "attempts":[{"replica":"chat/1#2","node":"a","outcome":"rejected","reason":"full","took_us":350},
    {"replica":"chat/0#1","node":"b","outcome":"answered","took_us":433000}]}]})");
  EXPECT_EQ(request_text(answer, {}),
            "request 3f2a was answered with 200 by chat/0#1\n"
            "it took 1.23 s, of which it waited 800 ms for a replica; the answer began after 1.1 s\n"
            "the gateway head received it at 2026-11-17 00:00:00 UTC, from caller t7, for chat\n"
            "\n"
            "replicas tried\n"
            "REPLICA   NODE  OUTCOME     TOOK  REASON\n"
            "chat/1#2  a     refused   350 us  full\n"
            "chat/0#1  b     answered  433 ms  -\n"
            "\n"
            "choice by least_loaded\n"
            "REPLICA   VERDICT    IN FLIGHT  MAX\n"
            "chat/0#1  winner             0    8\n"
            "chat/2#3  runner-up          1    8\n"
            "chat/1#2  tried              8    8\n");
  expect_fits_narrow_terminals([&](const Style& style) { return request_text(answer, style); });
}

TEST(RequestText, SaysWhatItMeansThatAReplicaWasNotConnected) {
  const auto answer = parsed(R"({"requests":[{"id":"3f2a","at_ms":1794873600000,"gateway":"edge","deployment":"chat",
    "outcome":"rejected","status":503,"reason":"unavailable","waited_us":2000000,"total_us":2000100,"policy":"least_loaded",
    "candidates":[{"replica":"chat/0#1","verdict":"not_connected","in_flight":0,"max_concurrent":8}],"tries":0}]})");
  const std::string text = request_text(answer, Style{200, false, false});
  EXPECT_TRUE(
      text.ends_with("chat/0#1  not connected          0    8\n\n"
                     "not connected: the node of the replica had no connection to the gateway edge; "
                     "berth status shows which nodes are not connected now and what to do\n"))
      << text;
}

TEST(RequestText, SaysWhyARequestWasRejectedOrFailed) {
  const auto first_line = [](const std::string& members) {
    return lines_of(request_text(
        parsed(R"({"requests":[{"id":"x","at_ms":1,"waited_us":0,"total_us":5,"tries":0,)" + members + "}]}"), {}))[0];
  };
  EXPECT_EQ(first_line(R"("outcome":"rejected","status":401,"reason":"wrong_key")"),
            "request x was rejected with 401 (wrong key) before a replica began to work on it");
  EXPECT_EQ(first_line(R"("outcome":"failed","status":502,"reason":"it closed the connection",
                          "attempts":[{"replica":"a/0#1","node":"n","outcome":"failed","took_us":1}])"),
            "request x failed at a/0#1: it closed the connection; the client got 502");
  EXPECT_EQ(
      first_line(
          R"("outcome":"abandoned","attempts":[{"replica":"a/0#1","node":"n","outcome":"abandoned","took_us":1}])"),
      "request x ended because the client closed its connection while a/0#1 worked on it");
  EXPECT_EQ(first_line(R"("outcome":"abandoned")"), "request x ended because the client closed its connection");
}

TEST(RequestText, ARouteSaysWhereARequestWouldGo) {
  EXPECT_EQ(route_text(parsed(R"({"route":{"text":"the request is for a and would go to a/0#1","deployment":"a",
                                  "matched_by":"address","policy":"least_loaded","replica":"a/0#1","gateways":[],
                                  "candidates":[{"replica":"a/0#1","verdict":"winner","in_flight":0,"max_concurrent":8}]}})"),
                       {}),
            "the request is for a and would go to a/0#1\n"
            "the deployment was found by its address\n"
            "\n"
            "choice by least_loaded\n"
            "REPLICA  VERDICT  IN FLIGHT  MAX\n"
            "a/0#1    winner           0    8\n"
            "\n"
            "no gateway has reported within 5 s, so the load of the replicas is not known\n");
}

TEST(EndpointsText, NodesWithoutAConnectionAndReplicasThatAreNotReadyAreSaidSo) {
  const auto answer = parsed(R"({"gateways":[{"name":"edge","address":"10.0.0.1:8081","reports":true}],
    "warnings":[{"subject":"gateway edge","text":"node b has no connection to it"}],"deployments":[{"name":"chat",
     "endpoints":[{"name":"chat/0#1","node":"b","state":"unready","max_concurrent":8}]}]})");
  EXPECT_EQ(endpoints_text(answer, {}),
            "gateway edge at 10.0.0.1:8081\n"
            "! gateway edge: node b has no connection to it\n"
            "REPLICA   STATE      NODE  MAX  IN FLIGHT  REQ/S  FIRST P99\n"
            "chat/0#1  not ready  b       8          -      -          -\n");
}

TEST(EndpointsText, ShowsTrafficInAlignedColumnsAndWhatIsNotKnownAsADash) {
  const auto answer = parsed(R"({"gateways":[{"name":"head","address":"127.0.0.1:8081"}],"deployments":[
    {"name":"chat","traffic":{"requests_per_s":12.345,"rejected_per_s":0,"failed_per_s":0.25,"waiting":3,"in_flight":8,
     "first_byte_s_p50":0.0012,"first_byte_s_p99":0.25,"total_s_p50":1.5,"total_s_p99":123.4,"ejected_by":[]},
     "endpoints":[{"name":"chat/0#1","node":"a","state":"ready","max_concurrent":8,
       "traffic":{"waiting":0,"in_flight":8,"ejected_by":[]}},
      {"name":"chat/1#2","node":"b","state":"ready","max_concurrent":8,
       "traffic":{"waiting":0,"in_flight":0,"ejected_by":["head"]}}]}]})");
  EXPECT_EQ(endpoints_text(answer, {}),
            "gateway head at 127.0.0.1:8081\n"
            "DEPLOYMENT  REQ/S  REJECT/S  FAIL/S  WAITING  IN FLIGHT  FIRST P50  FIRST P99  TOTAL P50  TOTAL P99\n"
            "chat         12.3         0    0.25        3          8     1.2 ms     250 ms      1.5 s      123 s\n"
            "\n"
            "REPLICA   STATE    NODE  MAX  IN FLIGHT  REQ/S  FIRST P99\n"
            "chat/0#1  ready    a       8          8      -          -\n"
            "chat/1#2  ejected  b       8          0      -          -\n");
  expect_fits_narrow_terminals([&](const Style& style) { return endpoints_text(answer, style); });
}

}  // namespace
}  // namespace berth::cli
