// TLS between server and client, with certificates made here.
#include <sys/stat.h>

#include <atomic>

#include "http/certificate.hpp"
#include "http/running_server.hpp"
#include "world/files.hpp"

namespace berth::http {
namespace {

using namespace test;

void hello(const Request& request, const Responder& responder) {
  responder.send({200, {}, request.peer.is_tls ? "secure" : "plain"});
}

struct Certified {
  Folder folder;
  TlsFiles files{folder / "server.pem", folder / "server.key"};

  explicit Certified(std::vector<std::string> names = {"localhost", "127.0.0.1"}) {
    EXPECT_TRUE(write_self_signed_certificate(names, files.certificate_file, files.key_file));
  }
  std::string fingerprint() const { return *certificate_fingerprint(files.certificate_file); }
};

Result<Response> get_with(ClientOptions options) {
  auto client = Client::create(std::move(options));
  return client ? client->request("GET", "/") : client.error();
}

TEST(Tls, ServesThoseWhoTrustItsCertificate) {
  const Certified own;
  RunningServer server(hello, {}, "127.0.0.1:0", own.files);
  const std::string port = server.address().substr(server.address().rfind(':'));
  for (const std::string& url : {server.url(), "https://localhost" + port}) {
    const auto answer = get_with({.url = url, .ca_file = own.files.certificate_file});
    ASSERT_TRUE(answer) << answer.error().to_text();
    EXPECT_EQ(answer->body, "secure");
  }
}

TEST(Tls, KeepsTheConnection) {
  const Certified own;
  RunningServer server(hello, {}, "127.0.0.1:0", own.files);
  auto client = Client::create({.url = server.url(), .ca_file = own.files.certificate_file});
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(client->request("GET", "/"));
  EXPECT_EQ(server.connections(), 1u);
}

TEST(Tls, AnUnknownAuthorityIsRefused) {
  const Certified own;
  RunningServer server(hello, {}, "127.0.0.1:0", own.files);
  const auto answer = get_with({.url = server.url()});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(answer.error().message, "the certificate of 127.0.0.1 is not signed by an authority that is trusted here");
}

TEST(Tls, AnotherNameIsRefused) {
  for (const auto& names : {std::vector<std::string>{"berth.example"}, {"127.0.0.9"}, {"127.0.0.1.example"}}) {
    const Certified own(names);
    RunningServer server(hello, {}, "127.0.0.1:0", own.files);
    const std::string port = server.address().substr(server.address().rfind(':'));
    for (const std::string host : {"127.0.0.1", "localhost"}) {
      const auto answer = get_with({.url = "https://" + host + port, .ca_file = own.files.certificate_file});
      ASSERT_FALSE(answer);
      EXPECT_EQ(answer.error().code, ErrorCode::invalid_argument);
      EXPECT_EQ(answer.error().message, "the certificate of " + host + " does not include the name '" + host + "'");
    }
  }
}

TEST(Tls, AFingerprintReplacesAuthorityAndName) {
  const Certified own({"some.example"});
  RunningServer server(hello, {}, "127.0.0.1:0", own.files);
  std::string colons;
  for (const char c : own.fingerprint()) {
    if (colons.size() % 3 == 2) colons += ':';
    colons += static_cast<char>(std::toupper(c));
  }
  EXPECT_TRUE(get_with({.url = server.url(), .fingerprint = own.fingerprint()}));
  EXPECT_TRUE(get_with({.url = server.url(), .fingerprint = colons}));
  const auto answer = get_with({.url = server.url(), .token = "geheim", .fingerprint = std::string(64, 'a')});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(answer.error().message.find(own.fingerprint()), std::string::npos);
}

TEST(Tls, CertificatesAreReadAgainWithoutARestart) {
  const Certified own;
  const std::string old = own.fingerprint();
  RunningServer server(hello, {}, "127.0.0.1:0", own.files);
  const std::vector<ListenOn> same{{"127.0.0.1:0", own.files}};
  auto kept = Client::create({.url = server.url(), .fingerprint = old});
  ASSERT_TRUE(kept->request("GET", "/"));
  const std::vector<std::string> names{"127.0.0.1"};
  ASSERT_TRUE(write_self_signed_certificate(names, own.files.certificate_file, own.files.key_file));
  ASSERT_NE(own.fingerprint(), old);
  EXPECT_TRUE(get_with({.url = server.url(), .fingerprint = old})) << "the new files are not used before listen_only()";
  server.on_thread([&] { EXPECT_TRUE(server->listen_only(same)); });
  EXPECT_TRUE(get_with({.url = server.url(), .fingerprint = own.fingerprint()}));
  EXPECT_FALSE(get_with({.url = server.url(), .fingerprint = old}));
  EXPECT_TRUE(kept->request("GET", "/")) << "existing connections continue";

  ASSERT_TRUE(world::write_text(own.files.key_file, "no key"));
  server.on_thread([&] { EXPECT_EQ(server->listen_only(same).error().code, ErrorCode::invalid_argument); });
  EXPECT_TRUE(get_with({.url = server.url(), .fingerprint = own.fingerprint()})) << "the old certificate stays";
}

TEST(Tls, WrongFilesAreRefusedAtTheStart) {
  const Certified own;
  const Certified other;
  Server server({}, hello);
  const auto code = [&](TlsFiles files) { return server.listen("127.0.0.1:0", std::move(files)).error().code; };
  EXPECT_EQ(code({own.folder / "none", own.files.key_file}), ErrorCode::invalid_argument);
  EXPECT_EQ(code({own.files.certificate_file, own.folder / "none"}), ErrorCode::invalid_argument);
  EXPECT_EQ(code({own.files.key_file, own.files.key_file}), ErrorCode::invalid_argument);
  EXPECT_EQ(code({own.files.certificate_file, other.files.key_file}), ErrorCode::invalid_argument);
}

TEST(Tls, PlainAndTlsDoNotMix) {
  const Certified own;
  std::atomic<bool> is_called = false;
  RunningServer secure(
      [&](const Request& request, const Responder& responder) {
        is_called = true;
        hello(request, responder);
      },
      {}, "127.0.0.1:0", own.files);
  const auto plain_client = get_with({.url = "http://" + secure.address()});
  ASSERT_TRUE(plain_client) << plain_client.error().to_text();
  EXPECT_EQ(plain_client->status, 400);
  EXPECT_NE(plain_client->body.find("this port accepts only https: write https:// instead of http://"),
            std::string::npos)
      << plain_client->body;
  EXPECT_FALSE(is_called) << "the request is not executed";
  RunningServer plain(hello);
  const auto tls_client = get_with({.url = "https://" + plain.address(), .ca_file = own.files.certificate_file});
  ASSERT_FALSE(tls_client);
  EXPECT_EQ(tls_client.error().code, ErrorCode::invalid_argument) << tls_client.error().to_text();
  EXPECT_EQ(get_with({.url = secure.url(), .fingerprint = own.fingerprint()})->status, 200) << "the server still works";
}

TEST(Tls, GarbageAndSilenceInTheHandshakeAreEnded) {
  const Certified own;
  ServerOptions options;
  options.limits.header_time = 150ms;
  RunningServer server(hello, options, "127.0.0.1:0", own.files);
  RawConnection silent(server.address());
  RawConnection half(server.address());
  half.send(std::string_view("\x16\x03\x01\x02\x00\x01\x00", 7));
  RawConnection garbage(server.address());
  garbage.send("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  garbage.read_all();
  half.read_all();
  EXPECT_TRUE(garbage.is_closed());
  EXPECT_TRUE(half.is_closed());
  EXPECT_TRUE(silent.is_closed());
  EXPECT_TRUE(eventually([&] { return server.connections() == 0; }));
}

TEST(Tls, StreamsAndLargeBodies) {
  const Certified own;
  RunningServer server(
      [](const Request& request, const Responder& responder) {
        const Stream stream = responder.stream({});
        for (int i = 0; i < 100; ++i) stream.write(std::string(10'000, 'x') + "\n");
        stream.write(std::to_string(request.body.size()));
        stream.close();
      },
      {.limits = {.stream_bytes = 2'000'000}}, "127.0.0.1:0", own.files);
  auto client = Client::create({.url = server.url(), .fingerprint = own.fingerprint()});
  const auto answer = client->request("POST", "/", std::string(3'000'000, 'y'));
  ASSERT_TRUE(answer) << answer.error().to_text();
  EXPECT_EQ(answer->body.size(), 100u * 10'001 + 7);
  std::size_t received = 0;
  ASSERT_TRUE(client->stream_bytes("/", [&](std::string_view bytes) { return received += bytes.size(), true; }));
  EXPECT_EQ(received, 100u * 10'001 + 1);
}

TEST(Tls, TheKeyOfACertificateIsPrivate) {
  const Certified own;
  struct stat entry{};
  ASSERT_EQ(stat(own.files.key_file.c_str(), &entry), 0);
  EXPECT_EQ(entry.st_mode & 0777, 0600u);
  EXPECT_EQ(own.fingerprint().size(), 64u);
  const std::vector<std::string> injected{"a,DNS:b"};
  EXPECT_FALSE(write_self_signed_certificate(injected, own.files.certificate_file, own.files.key_file));
  EXPECT_FALSE(write_self_signed_certificate({}, own.files.certificate_file, own.files.key_file));
  EXPECT_EQ(certificate_fingerprint(own.files.key_file).error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace berth::http
