// Streams and server-sent events, from a server to a client.
#include <algorithm>
#include <future>
#include <utility>
#include <vector>

#include "http/running_server.hpp"

namespace berth::http {
namespace {

using namespace test;

TEST(Stream, GivesBytesAsTheyAreWritten) {
  std::promise<Stream> begun;
  RunningServer server([&](const Request&, const Responder& responder) { begun.set_value(responder.stream({})); });
  std::string all;
  std::promise<void> first;
  auto call = std::async(std::launch::async, [&] {
    return client_of(server).stream_bytes("/", [&](std::string_view bytes) {
      if (all.empty()) first.set_value();
      all += bytes;
      return true;
    });
  });
  const Stream stream = begun.get_future().get();
  EXPECT_TRUE(stream.write("one\ntw"));
  EXPECT_EQ(first.get_future().wait_for(5s), std::future_status::ready) << "not only at the end";
  EXPECT_TRUE(stream.write("o\n\nlast"));
  stream.close();
  const auto answer = call.get();
  ASSERT_TRUE(answer) << answer.error().to_text();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(all, "one\ntwo\n\nlast");
  EXPECT_FALSE(stream.write("after the end"));
  EXPECT_FALSE(stream.is_open());
}

TEST(Stream, TheConnectionServesTheNextRequest) {
  RunningServer server([](const Request& request, const Responder& responder) {
    if (request.path == "/once") return responder.send({200, {}, "x"});
    const Stream stream = responder.stream({});
    stream.write("a\n");
    stream.close();
  });
  Client client = client_of(server);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(client.stream_bytes("/stream", [](std::string_view) { return true; }));
    EXPECT_EQ(client.request("GET", "/once")->body, "x");
    EXPECT_EQ(client.request("GET", "/stream")->body, "a\n");
    EXPECT_EQ(client.request("HEAD", "/stream")->body, "");
  }
  EXPECT_EQ(server.connections(), 1u);
}

TEST(Stream, EndsWhenItsLastOwnerIsGone) {
  RunningServer server([](const Request&, const Responder& responder) { responder.stream({}).write("a\n"); });
  EXPECT_EQ(client_of(server).request("GET", "/")->body, "a\n");
}

TEST(Stream, AnotherStatusIsReturnedWhole) {
  RunningServer server(
      [](const Request&, const Responder& responder) { responder.send(error_response(404, "not_found", "no")); });
  const auto answer = client_of(server).stream_bytes("/", [](std::string_view) { return ADD_FAILURE(), true; });
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 404);
  EXPECT_NE(answer->body.find("not_found"), std::string::npos);
}

TEST(Stream, TheReaderMayEndIt) {
  std::promise<void> gone;
  RunningServer server([&](const Request&, const Responder& responder) {
    const Stream stream = responder.stream({});
    responder.on_gone([&, stream] {
      EXPECT_FALSE(stream.is_open());
      gone.set_value();
    });
    stream.write("a");
  });
  Client client = client_of(server);
  const auto answer = client.stream_bytes("/", [&](std::string_view) { return false; });
  ASSERT_TRUE(answer);
  EXPECT_EQ(gone.get_future().wait_for(5s), std::future_status::ready);
}

TEST(Stream, ASlowReaderIsDropped) {
  std::promise<Stream> begun;
  std::promise<void> gone;
  RunningServer server(
      [&](const Request&, const Responder& responder) {
        responder.on_gone([&] { gone.set_value(); });
        begun.set_value(responder.stream({}));
      },
      {.limits = {.stream_bytes = 100'000}});
  RawConnection reader(server.address(), 4096);
  reader.send(get("/"));
  const Stream stream = begun.get_future().get();
  const std::string piece(10'000, 'x');
  int written = 0;
  while (stream.write(piece)) {
    EXPECT_LE(stream.buffered_bytes(), 110'000u);
    ASSERT_LT(++written, 10'000) << "the buffer has no bound";
  }
  EXPECT_EQ(gone.get_future().wait_for(5s), std::future_status::ready);
  EXPECT_FALSE(stream.is_open());
  EXPECT_TRUE(eventually([&] { return server.connections() == 0; }));
}

TEST(Stream, ASourceThatAsksForRoomLosesNothing) {
  constexpr std::size_t pieces = 600, piece_bytes = 50'000;
  std::promise<Stream> begun;
  RunningServer server([&](const Request&, const Responder& responder) { begun.set_value(responder.stream({})); },
                       {.limits = {.stream_bytes = 200'000}});
  RawConnection reader(server.address());
  reader.send(get("/", "connection: close\r\n"));
  const Stream stream = begun.get_future().get();
  auto source = std::async(std::launch::async, [&] {
    for (std::size_t i = 0; i < pieces; ++i) {
      std::promise<void> room;
      stream.on_room([&] { room.set_value(); });
      room.get_future().wait();
      if (!stream.write(std::string(piece_bytes, 'x'))) return false;
    }
    stream.close();
    return true;
  });
  EXPECT_EQ(source.wait_for(200ms), std::future_status::timeout) << "the reader has not read";
  const std::string got = reader.read_all();
  EXPECT_TRUE(source.get());
  const auto body = got.begin() + static_cast<std::ptrdiff_t>(got.find("\r\n\r\n"));
  EXPECT_EQ(static_cast<std::size_t>(std::count(body, got.end(), 'x')), pieces * piece_bytes);
}

TEST(Stream, NoRoomIsToldOfAStreamThatIsOver) {
  std::promise<Stream> begun;
  RunningServer server([&](const Request&, const Responder& responder) { begun.set_value(responder.stream({})); });
  const auto held = std::make_shared<int>();
  {
    RawConnection reader(server.address(), 4096);
    reader.send(get("/"));
    const Stream stream = begun.get_future().get();
    std::size_t before = 0;
    int looks = 0;
    EXPECT_TRUE(eventually([&] {
      while (stream.buffered_bytes() < 700'000)
        if (!stream.write(std::string(10'000, 'x'))) return false;
      const std::size_t now = stream.buffered_bytes();
      looks = std::exchange(before, now) == now ? looks + 1 : 0;
      return looks == 50;
    })) << "the kernel has no room either";
    stream.on_room([held] { ADD_FAILURE(); });
    EXPECT_EQ(held.use_count(), 2);
  }
  EXPECT_TRUE(eventually([&] { return held.use_count() == 1; })) << "the captures of the function are destroyed";
}

TEST(Stream, AReaderMayPauseWhereTheHandlerAllowsIt) {
  for (const bool may_pause : {false, true}) {
    std::promise<Stream> begun;
    std::promise<void> gone;
    RunningServer server(
        [&](const Request&, const Responder& responder) {
          responder.on_gone([&] { gone.set_value(); });
          begun.set_value(responder.stream({.reader_may_pause = may_pause}));
        },
        {.limits = {.stream_bytes = 70'000'000, .write_time = 50ms}});
    auto is_gone = gone.get_future();
    RawConnection reader(server.address(), 4096);
    reader.send(get("/"));
    const Stream stream = begun.get_future().get();
    ASSERT_TRUE(stream.write(std::string(60'000'000, 'x')));
    EXPECT_EQ(is_gone.wait_for(may_pause ? 500ms : 60'000ms),
              may_pause ? std::future_status::timeout : std::future_status::ready);
    EXPECT_EQ(stream.is_open(), may_pause);
  }
}

TEST(Stream, TheTimeThatAPieceTakesItsReceiverIsNotTheServers) {
  RunningServer server([](const Request&, const Responder& responder) {
    const Stream stream = responder.stream({});
    stream.write("a\n" + std::string(1'000'000, 'x') + "\nb\n");
    stream.close();
  });
  std::promise<void> never;
  const auto taken = never.get_future();
  std::size_t received = 0;
  const auto slowly = [&](std::string_view bytes) {
    if (received == 0) {
      EXPECT_EQ(taken.wait_for(2500ms), std::future_status::timeout);
    }
    received += bytes.size();
    return true;
  };
  const auto answer = client_of(server).stream_bytes("/", slowly, {.timeout = 2s});
  EXPECT_TRUE(answer) << answer.error().to_text();
  EXPECT_EQ(received, 1'000'005u);
}

TEST(Stream, OnlyWhatWaitsCountsAsBuffered) {
  std::promise<Stream> begun;
  RunningServer server([&](const Request&, const Responder& responder) { begun.set_value(responder.stream({})); },
                       {.limits = {.stream_bytes = 70'000'000}});
  RawConnection reader(server.address(), 4096);
  reader.send(get("/"));
  const Stream stream = begun.get_future().get();
  ASSERT_TRUE(stream.write(std::string(60'000'000, 'x')));
  EXPECT_TRUE(eventually([&] { return stream.buffered_bytes() < 60'000'000; })) << "the kernel took some of it";
  EXPECT_GT(stream.buffered_bytes(), 30'000'000u);
}

TEST(Stream, ABreakInTheMiddleIsAnError) {
  std::promise<Stream> begun;
  RunningServer server([&](const Request&, const Responder& responder) {
    const Stream stream = responder.stream({});
    stream.write("a\n");
    begun.set_value(stream);
  });
  auto call = std::async(std::launch::async, [&] {
    Client client = client_of(server);
    return client.stream_bytes("/", [&](std::string_view) {
      EXPECT_FALSE(begun.get_future().get().write(std::string(2'000'000, 'x')))
          << "writing more than the bound ends the stream";
      return true;
    });
  });
  const auto answer = call.get();
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::unavailable);
}

TEST(Stream, AShutdownEndsIt) {
  std::promise<Stream> begun;
  RunningServer server([&](const Request&, const Responder& responder) { begun.set_value(responder.stream({})); });
  auto call = std::async(std::launch::async,
                         [&] { return client_of(server).stream_bytes("/", [](std::string_view) { return true; }); });
  const Stream stream = begun.get_future().get();
  stream.write("x\n");
  server.join(5s);
  EXPECT_TRUE(call.get()) << "a clean end";
  EXPECT_FALSE(stream.write("y"));
}

TEST(Stream, IsKeptAliveByComments) {
  std::promise<Stream> begun;
  RunningServer server([&](const Request&, const Responder& responder) {
    StreamHead head = event_stream_head();
    EXPECT_EQ(head.keep_alive_every, 15s);
    head.keep_alive_every = 10ms;
    begun.set_value(responder.stream(head));
  });
  std::string all;
  Client client = client_of(server);
  const auto answer = client.stream_bytes("/", [&](std::string_view bytes) {
    all += bytes;
    return all.size() < 8;
  });
  ASSERT_TRUE(answer) << answer.error().to_text();
  EXPECT_EQ(answer->headers.get("content-type"), "text/event-stream");
  EXPECT_EQ(all.substr(0, 8), ": \n\n: \n\n");
}

TEST(Stream, SilenceIsATimeout) {
  std::promise<Stream> begun;
  RunningServer server([&](const Request&, const Responder& responder) { begun.set_value(responder.stream({})); });
  const auto answer = client_of(server).stream_bytes("/", [](std::string_view) { return true; }, {.timeout = 50ms});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::timeout);
}

TEST(Stream, GivesEventsWithTheLastIdOfAReconnectingClient) {
  RunningServer server([](const Request& request, const Responder& responder) {
    const Stream stream = responder.stream(event_stream_head());
    const int after = std::stoi(last_event_id(request).value_or("0"));
    for (int i = after + 1; i <= after + 2; ++i)
      stream.write(to_text({.name = "change", .id = std::to_string(i), .data = "{\n}"}));
    stream.close();
  });
  Client client = client_of(server);
  std::vector<Event> events;
  const auto keep = [&](const Event& event) { return events.push_back(event), true; };
  ASSERT_TRUE(client.stream_events("/", keep));
  ASSERT_TRUE(client.stream_events("/", keep, {.headers = {{"last-event-id", events.back().id}}}));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[3], (Event{"change", "4", "{\n}"}));
}

TEST(Stream, ManyWritersOnManyThreads) {
  std::promise<Stream> begun;
  RunningServer server([&](const Request&, const Responder& responder) { begun.set_value(responder.stream({})); },
                       {.limits = {.stream_bytes = 10'000'000}});
  const std::string line = "01234567890123456789\n";
  auto call = std::async(std::launch::async, [&] {
    std::string all;
    EXPECT_TRUE(client_of(server).stream_bytes("/", [&](std::string_view bytes) { return all += bytes, true; }));
    return all;
  });
  {
    const Stream stream = begun.get_future().get();
    std::vector<std::thread> writers;
    for (int w = 0; w < 4; ++w)
      writers.emplace_back([stream, &line] {
        for (int i = 0; i < 500; ++i) EXPECT_TRUE(stream.write(line));
      });
    for (std::thread& writer : writers) writer.join();
    begun = {};  // its copy of the stream
  }
  const std::string all = call.get();
  ASSERT_EQ(all.size(), 2000 * line.size());
  for (std::size_t at = 0; at < all.size(); at += line.size())
    ASSERT_EQ(all.substr(at, line.size()), line) << "a single write stays in one piece";
}

}  // namespace
}  // namespace berth::http
