// A gateway as it runs in its process, and other processes that take over its place.
#include "gateway/gateway_process.hpp"

#include <gtest/gtest.h>
#include <sys/un.h>

#include <filesystem>
#include <future>
#include <mutex>

#include "gateway/test_fleet.hpp"

namespace berth::gateway {
namespace {

class Process {
 public:
  explicit Process(const std::function<void(GatewayProcessOptions&)>& change = nullptr) {
    std::string made = (std::filesystem::temp_directory_path() / "gateway-XXXXXX").string();
    EXPECT_NE(::mkdtemp(made.data()), nullptr);
    folder = made;
    options_.server = [] { return Error{ErrorCode::unavailable, "there is no server"}; };
    options_.listeners = {{"127.0.0.1:0", std::nullopt}};
    options_.folder = folder;
    options_.access_lines = AccessLines::all;
    options_.ending = [this] { ++given_up; };
    options_.log = [this](const format::LogRecord& record) {
      const bool stalls = record.message.find("rejected") != std::string::npos;
      if (stalls) const std::lock_guard lock(stall);
    };
    if (change) change(options_);
    ended_ = std::async(std::launch::async, [this] {
      return run_gateway(options_, [this](const std::vector<std::string>& urls) { url_.set_value(urls.front()); });
    });
    url = url_.get_future().get();
  }
  ~Process() { std::filesystem::remove_all(folder); }
  bool has_ended(std::chrono::milliseconds within) { return ended_.wait_for(within) == std::future_status::ready; }
  bool is_served() {
    const auto answer = http::Client::create({.url = url})->request("GET", "/");
    return answer && answer->status == 503;  // it has no endpoints from a server yet
  }

  std::string folder, url;
  std::atomic<int> given_up = 0;
  std::mutex stall;  // held: the gateway's thread stops at the next request

 private:
  GatewayProcessOptions options_;
  std::promise<std::string> url_;
  std::future<Result<void>> ended_;
};

// The gateway's thread is blocked as long as this object exists.
class Stalled {
 public:
  explicit Stalled(Process& gateway) : lock_(gateway.stall) {
    const int client = sent(gateway.url, "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n");
    char first = 0;
    EXPECT_EQ(::recv(client, &first, 1, 0), 1);  // next it writes to the log, where it blocks
    ::close(client);
  }

 private:
  const std::lock_guard<std::mutex> lock_;
};

TEST(GatewayProcess, ThatIsStalledGoesOnWhereTheOtherHasGivenUpAndGivesUpItsPlaceOnce) {
  Process gateway;
  {
    auto other = TakeOver::begin(gateway.folder);
    ASSERT_TRUE(other) << other.error().to_text();
    const Stalled stalled(gateway);
    other->finish();  // gets no answer in time
    EXPECT_EQ(gateway.given_up, 0);
  }
  EXPECT_TRUE(gateway.is_served());
  EXPECT_EQ(gateway.given_up, 0) << "the place is not given up later to a process that is gone";
  auto next = TakeOver::begin(gateway.folder);
  ASSERT_TRUE(next) << next.error().to_text();
  next->finish();
  EXPECT_EQ(gateway.given_up, 1);
  EXPECT_FALSE(TakeOver::begin(gateway.folder)) << "the next offer comes from the process that took over";
  EXPECT_TRUE(gateway.has_ended(10s));
  EXPECT_EQ(gateway.given_up, 1);
}

TEST(GatewayProcess, KeepsItsPlaceWhereTheOtherIsGoneBeforeItIsGivenUp) {
  Process gateway;
  const int other = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = gateway.folder + "/take-over.socket";
  std::copy(path.begin(), path.end(), address.sun_path);
  ASSERT_EQ(::connect(other, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  char first = 0;
  ASSERT_EQ(::recv(other, &first, 1, 0), 1);  // the gateway's sockets
  {
    const Stalled stalled(gateway);
    ASSERT_EQ(::send(other, "r", 1, 0), 1);
    ::close(other);
  }
  EXPECT_TRUE(TakeOver::begin(gateway.folder)) << "the gateway handles the next process after the one that is gone";
  EXPECT_EQ(gateway.given_up, 0);
  EXPECT_TRUE(gateway.is_served());
  ::raise(SIGTERM);
  EXPECT_TRUE(gateway.has_ended(10s));
}

TEST(GatewayProcess, AsksForTheEndpointsAlsoWhereItsCertificateAndItsAddressAreRefused) {
  std::promise<void> asked;
  std::atomic<int> count = 0, renewals = 0;
  OnThread server({}, http::Server::Handler([&](const http::Request& request, const http::Responder& to) {
                    if (request.path == "/api/v1/gateway/endpoints" && ++count == 3) asked.set_value();
                    to.send({503, {}, "{}"});
                  }));
  Process gateway([&](GatewayProcessOptions& options) {
    options.server = [&]() -> Result<http::ClientOptions> { return http::ClientOptions{.url = server.url}; };
    options.renew = [&](http::Client&, const http::ClientOptions&) -> Result<bool> {
      ++renewals;
      return Error{ErrorCode::io, "the disk is full"};
    };
  });
  EXPECT_EQ(asked.get_future().wait_for(20s), std::future_status::ready);
  EXPECT_EQ(renewals, 1) << "not with each attempt";
  ::raise(SIGTERM);
  EXPECT_TRUE(gateway.has_ended(10s));
}

TEST(GatewayProcess, ThatIsStoppedListensNoLongerWhereItsPlaceIsFree) {
  Process gateway;
  std::optional waiting = TakeOver::begin(gateway.folder);
  ASSERT_TRUE(*waiting) << waiting->error().to_text();
  const int client = sent(gateway.url, "GET / HTTP/1.1\r\n");  // keeps the gateway from ending
  EXPECT_TRUE(gateway.is_served());
  ::raise(SIGTERM);
  EXPECT_TRUE(eventually([&] { return gateway.given_up > 0; }));
  EXPECT_FALSE(gateway.has_ended(0ms));
  Result<std::unique_ptr<TakeOverOffer>> offer = TakeOverOffer::make(
      gateway.folder, [] { return std::map<std::string, int>(); }, [](const std::function<bool()>&) { return false; });
  EXPECT_TRUE(offer) << offer.error().to_text();
  (*waiting)->finish();  // returns at once
  waiting.reset();       // closes the sockets that it received
  EXPECT_FALSE(gateway.is_served());
  ::close(client);
  EXPECT_TRUE(gateway.has_ended(10s));
}

}  // namespace
}  // namespace berth::gateway
