#include "http/static_files.hpp"

#include <gtest/gtest.h>

namespace berth::http {
namespace {

const StaticFiles files({
    {.path = "/index.html", .content_type = "text/html", .bytes = "<p>", .gzipped = "GZ", .etag = "e1"},
    {.path = "/assets/a-4f.js", .content_type = "text/javascript", .bytes = "js", .etag = "e2", .is_hashed = true},
});

Response answer(std::string path, Headers headers = {}, std::string method = "GET") {
  Request request;
  request.method = std::move(method);
  request.path = std::move(path);
  request.headers = std::move(headers);
  return files.answer(request).value_or(Response{.status = 404});
}

TEST(StaticFiles, GivesTheIndexAtTheRoot) {
  const Response root = answer("/");
  EXPECT_EQ(root.status, 200);
  EXPECT_EQ(root.body, "<p>");
  EXPECT_EQ(root.headers.get("content-type"), "text/html");
  EXPECT_EQ(root.headers.get("cache-control"), "no-cache");
  EXPECT_EQ(answer("/index.html").body, "<p>");
  EXPECT_EQ(answer("/none").status, 404);
  EXPECT_EQ(answer("/", {}, "POST").status, 405);
}

TEST(StaticFiles, HashedNamesAreKept) {
  EXPECT_EQ(answer("/assets/a-4f.js").headers.get("cache-control"), "public, max-age=31536000, immutable");
}

TEST(StaticFiles, GzipForThoseWhoAcceptIt) {
  for (const char* accepted : {"gzip", "deflate, gzip;q=0.5", "br , gzip"}) {
    const Response response = answer("/", {{"accept-encoding", accepted}});
    EXPECT_EQ(response.body, "GZ") << accepted;
    EXPECT_EQ(response.headers.get("content-encoding"), "gzip");
    EXPECT_EQ(response.headers.get("vary"), "accept-encoding");
  }
  for (const char* accepted : {"", "br", "gzip;q=0", "gzip;q=0.0", "xgzip"}) {
    const Response response = answer("/", {{"accept-encoding", accepted}});
    EXPECT_EQ(response.body, "<p>") << accepted;
    EXPECT_EQ(response.headers.get("vary"), "accept-encoding") << "also for the uncompressed form";
  }
  EXPECT_EQ(answer("/assets/a-4f.js", {{"accept-encoding", "gzip"}}).body, "js") << "there is no gzipped form";
}

TEST(StaticFiles, AnUnchangedFileIsNotSentAgain) {
  for (const char* tag : {"\"e1\"", "W/\"e1\"", "\"x\", \"e1\"", "*"}) {
    const Response response = answer("/", {{"if-none-match", tag}});
    EXPECT_EQ(response.status, 304) << tag;
    EXPECT_EQ(response.body, "");
    EXPECT_EQ(response.headers.get("etag"), "\"e1\"");
  }
  EXPECT_EQ(answer("/", {{"if-none-match", "\"e2\""}}).status, 200);
  EXPECT_EQ(answer("/", {{"if-none-match", "\"e1\""}, {"accept-encoding", "gzip"}}).status, 200)
      << "the gzipped form has other bytes";
  EXPECT_EQ(answer("/", {{"if-none-match", "\"e1-gzip\""}, {"accept-encoding", "gzip"}}).status, 304);
}

}  // namespace
}  // namespace berth::http
