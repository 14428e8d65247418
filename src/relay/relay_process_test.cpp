// A relay as its agent sees it: over its control socket. Its processes are tested with agents
// (agent/node_relay_test.cpp).
#include "relay/relay_process.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <mutex>

#include "relay/control.hpp"
#include "relay/test_gateway.hpp"
#include "world/files.hpp"
#include "world/test_folder.hpp"

namespace berth::relay {
namespace {

using namespace std::chrono_literals;
using test::eventually;
using test::Running;
using test::TestGateway;

// run_relay_process() on a thread, until it ends by itself or the test does.
class RunningRelay {
 public:
  explicit RunningRelay(std::string folder, RelayProcessOptions options = {}) : options_(std::move(options)) {
    options_.folder = std::move(folder);
    options_.node = "n1";
    options_.version = "test";
    options_.on_ready = [this] { ready_.set_value(); };
    ended_ = std::async(std::launch::async, [this] { return run_relay_process(options_); });
    ready_.get_future().wait();
  }
  ~RunningRelay() {
    if (ended_.valid()) static_cast<void>(call("POST", end_path));
  }
  Result<http::Response> call(const std::string& method, const std::string& path, const std::string& body = {}) const {
    return http::Client::create({.url = control_url(options_.folder)})->request(method, path, body);
  }
  ControlAnswer put(const Control& control) const {
    const auto answer = call("PUT", targets_path, to_text(control));
    if (!answer || answer->status != 200) {
      ADD_FAILURE() << (answer ? answer->body : answer.error().to_text());
      return {};
    }
    return read_control_answer(answer->body).value();
  }
  bool has_ended() const { return ended_.wait_for(0s) == std::future_status::ready; }
  // How it ended.
  Result<void> join() { return ended_.get(); }

 private:
  RelayProcessOptions options_;
  std::promise<void> ready_;
  std::future<Result<void>> ended_;
};

http::Server::Handler answering(const std::string& text) {
  return [text](const http::Request&, const http::Responder& to) { to.send({200, {}, text}); };
}

TEST(RelayControl, IsJsonThatEachSideReadsAsTheOtherWroteIt) {
  const Control control{{{"chat/0#17", "http://127.0.0.1:40001", 8, true, "/jobs/j1"}},
                        {{"g1", "http://10.0.0.5:8081", "berth_secret"}}};
  EXPECT_EQ(to_text(control),
            "{\"schema\":1,\"targets\":[{\"name\":\"chat/0#17\",\"address\":\"http://127.0.0.1:40001\","
            "\"concurrent_max\":8,\"is_draining\":true,\"job\":\"/jobs/j1\",\"in_flight_elsewhere\":0}],"
            "\"gateways\":[{\"name\":\"g1\",\"url\":\"http://10.0.0.5:8081\",\"key\":\"berth_secret\"}]}");
  EXPECT_EQ(read_control(to_text(control)).value(), control);
  const ControlAnswer answer{{{"chat/0#17", 2}}, "0.1.0"};
  EXPECT_EQ(to_text(answer), "{\"schema\":1,\"in_flight\":{\"chat/0#17\":2},\"version\":\"0.1.0\",\"problem\":\"\"}");
  EXPECT_EQ(read_control_answer(to_text(answer)).value(), answer);
  EXPECT_EQ(read_control("{\"targets\":[],\"gateways\":[{\"name\":\"g\",\"url\":1,\"key\":\"berth_secret\"}]}")
                .error()
                .to_text()
                .find("berth_secret"),
            std::string::npos);
}

TEST(RelayProcess, ConnectsToGatewaysByTheKeyThatItIsTold) {
  const world::TestFolder folder;
  Running replica({}, answering("served"));
  TestGateway gateway("berth_right");
  RunningRelay relay(folder.path);
  const Target target{"a/0#1", replica.url, 4, false};
  relay.put({{target}, {{"g", gateway.url(), "berth_wrong"}}});
  relay.put({{target}, {{"g", gateway.url(), "berth_right"}}});
  const auto answer = gateway.ask("a/0#1");
  ASSERT_TRUE(answer) << answer.error().to_text();
  EXPECT_EQ(answer->body, "served");
}

TEST(RelayProcess, TellsWhatIsInFlightAndEndsAfterIt) {
  const world::TestFolder folder;
  std::promise<http::Stream> begun;
  Running slow({}, [&](const http::Request&, const http::Responder& to) { begun.set_value(to.stream({})); });
  TestGateway gateway;
  RunningRelay relay(folder.path);
  const Control control{{{"a/0#1", slow.url, 4, false}}, {{"g", gateway.url(), ""}}};
  EXPECT_EQ(relay.put(control), (ControlAnswer{{{"a/0#1", 0}}, "test"}));
  std::future<std::string> stream = std::async(std::launch::async, [&] { return gateway.read_stream("a/0#1"); });
  const http::Stream writer = begun.get_future().get();
  EXPECT_EQ(relay.put(control).in_flight.at("a/0#1"), 1U);

  EXPECT_EQ(relay.call("POST", end_path)->status, 202);
  EXPECT_EQ(relay.call("PUT", targets_path, to_text(control))->status, 503) << "an ending relay takes no new targets";
  EXPECT_FALSE(relay.has_ended());
  writer.write("all of it");
  writer.close();
  EXPECT_EQ(stream.get(), "all of it");
  EXPECT_TRUE(relay.join());
  EXPECT_FALSE(std::filesystem::exists(folder.path / "control"));
}

TEST(RelayProcess, AnEndDoesNotWaitForARequestForEver) {
  const world::TestFolder folder;
  std::promise<http::Stream> begun;
  Running slow({}, [&](const http::Request&, const http::Responder& to) { begun.set_value(to.stream({})); });
  TestGateway gateway;
  RelayProcessOptions options;
  options.drain_max = 50ms;
  RunningRelay relay(folder.path, options);
  relay.put({{{"a/0#1", slow.url, 4, false}}, {{"g", gateway.url(), ""}}});
  std::future<std::string> stream = std::async(std::launch::async, [&] { return gateway.read_stream("a/0#1"); });
  const http::Stream writer = begun.get_future().get();
  ::raise(SIGTERM);
  EXPECT_TRUE(relay.join());
  EXPECT_NE(stream.get(), "");
}

TEST(RelayProcess, OneRunsPerFolder) {
  const world::TestFolder folder;
  RunningRelay relay(folder.path);
  RelayProcessOptions options;
  options.folder = folder.path;
  const Result<void> second = run_relay_process(options);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::already_exists);
  EXPECT_EQ(relay.put({}), (ControlAnswer{{}, "test"})) << "the first relay continues";
}

TEST(RelayProcess, LeavesItsPlaceToAnotherAndFinishesItsRequests) {
  const world::TestFolder folder;
  std::promise<http::Stream> begun;
  Running slow({}, [&](const http::Request&, const http::Responder& to) { begun.set_value(to.stream({})); });
  TestGateway gateway;
  RunningRelay old(folder.path);
  const Control control{{{"a/0#1", slow.url, 1, false}}, {{"g", gateway.url(), ""}}};
  old.put(control);
  std::future<std::string> stream = std::async(std::launch::async, [&] { return gateway.read_stream("a/0#1"); });
  const http::Stream writer = begun.get_future().get();

  RelayProcessOptions options;
  options.replaces = true;
  options.drain_max = 0ms;  // does not apply to replaced relays
  RunningRelay next(folder.path, options);
  const std::vector<std::string> replaced = replaced_relays(folder.path);
  ASSERT_EQ(replaced, std::vector{name_of_replaced(::getpid())});
  EXPECT_EQ(gateway.ask("a/0#1")->headers.get(header_refused), "full") << "the replaced relay still takes requests";
  const auto ended = http::Client::create({.url = control_url(folder.path, replaced[0])})->request("POST", end_path);
  EXPECT_EQ(read_control_answer(ended->body).value().in_flight.at("a/0#1"), 1U);
  EXPECT_EQ(next.put({{{"a/0#1", slow.url, 1, false, "", 1}}, {{"g", gateway.url(), ""}}}).in_flight.at("a/0#1"), 0U);
  const auto answer = gateway.ask("a/0#1");
  EXPECT_EQ(answer->headers.get(header_refused), "full") << "requests of both relays count";
  EXPECT_EQ(answer->headers.get(header_load), "1/1");
  EXPECT_FALSE(old.has_ended());
  writer.write("all of it");
  writer.close();
  EXPECT_EQ(stream.get(), "all of it");
  EXPECT_TRUE(old.join());
  EXPECT_TRUE(replaced_relays(folder.path).empty());
  EXPECT_EQ(next.put({}), (ControlAnswer{{}, "test"})) << "the new relay still has its socket";
}

TEST(RelayProcess, RefusesWhatIsNotAControlMessageAndKeepsItsState) {
  const world::TestFolder folder;
  RunningRelay relay(folder.path);
  relay.put({{{"a/0#1", "http://127.0.0.1:1", 4, false}}, {}});
  EXPECT_EQ(relay.call("PUT", targets_path, "{\"targets\":[]}")->status, 400);
  EXPECT_EQ(relay.call("PUT", targets_path, "nonsense")->status, 400);
  EXPECT_EQ(relay.call("GET", targets_path)->status, 404);
  EXPECT_TRUE(relay.put({{{"a/0#1", "http://127.0.0.1:1", 4, false}}, {}}).in_flight.contains("a/0#1"));
}

TEST(RelayProcess, EndsWhenItsFolderIsRemoved) {
  RelayProcessOptions options;
  options.look_every = 1ms;
  std::optional<world::TestFolder> folder(std::in_place);
  RunningRelay relay(folder->path, options);
  folder.reset();
  EXPECT_TRUE(relay.join());
}

TEST(RelayProcess, EndsWithoutTargetsWhenNoAgentTellsItAnything) {
  const world::TestFolder folder;
  RelayProcessOptions options;
  options.look_every = 1ms;
  options.silence_max = 200ms;
  RunningRelay relay(folder.path, options);
  const std::string job = folder.path / "job";
  ASSERT_TRUE(world::write_text(job, ""));
  relay.put({{{"a/0#1", "http://127.0.0.1:1", 4, false, job}}, {}});
  const TimePoint put_at = real_clock().now();
  EXPECT_TRUE(eventually([&] { return real_clock().now() > put_at + 400ms; }));
  EXPECT_FALSE(relay.has_ended()) << "a relay with a target does not end";
  std::filesystem::remove(job);
  EXPECT_TRUE(relay.join());
}

}  // namespace
}  // namespace berth::relay
