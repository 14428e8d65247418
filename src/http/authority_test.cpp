// The authority of a fleet: servers and clients with certificates that it has signed.
#include "http/authority.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include "http/certificate.hpp"
#include "http/running_server.hpp"
#include "http/x509.hpp"
#include "world/files.hpp"
#include "world/wall_time.hpp"

namespace berth::http {
namespace {

using namespace test;

void echo_certificate(const Request& request, const Responder& responder) {
  responder.send({200, {}, request.peer.certificate ? request.peer.certificate->uri : "no certificate"});
}

const std::vector<std::string> here{"127.0.0.1", "localhost"};

struct TestFleet {
  Folder folder;
  Authority authority = *Authority::open(folder / "authority");

  TlsFiles server_files(std::chrono::seconds lifetime = 1h, const std::vector<std::string>& names = here) const {
    return *authority.make_server_certificate(names, lifetime);
  }
  // A file with a certificate and its key.
  std::string client_file(const std::string& uri, std::chrono::seconds lifetime = 1h) const {
    const CertificateRequest request = *make_certificate_request();
    const auto made = authority.sign(request.request, {"a", "node", uri}, lifetime);
    EXPECT_TRUE(made);
    const std::string file = folder / "client.pem";
    EXPECT_TRUE(world::write_private_text(file, *made + request.key));
    return file;
  }
};

Result<Response> ask_server(ClientOptions options) {
  auto client = Client::create(std::move(options));
  return client ? client->request("GET", "/") : client.error();
}

TEST(AuthorityTest, IsMadeOnceAndItsKeyIsPrivate) {
  const TestFleet fleet;
  const Authority again = *Authority::open(fleet.folder / "authority");
  EXPECT_EQ(again.fingerprint(), fleet.authority.fingerprint());
  EXPECT_EQ(again.fingerprint().size(), 64u);
  struct stat entry{};
  ASSERT_EQ(stat((fleet.folder / "authority").c_str(), &entry), 0);
  EXPECT_EQ(entry.st_mode & 0777, 0700u);
  for (const char* key : {"authority/authority.key", "authority/server.key"}) {
    fleet.server_files();
    ASSERT_EQ(stat((fleet.folder / key).c_str(), &entry), 0);
    EXPECT_EQ(entry.st_mode & 0777, 0600u) << key;
  }
  const TestFleet other;
  EXPECT_NE(other.authority.fingerprint(), fleet.authority.fingerprint());
  ASSERT_TRUE(world::write_text(fleet.authority.certificate_file(), other.authority.certificate()));
  EXPECT_EQ(Authority::open(fleet.folder / "authority").error().code, ErrorCode::invalid_argument);
}

TEST(AuthorityTest, AKeyThatNodesKnowIsNotReplacedWhereAFileIsMissing) {
  const TestFleet fleet;
  fleet.server_files();
  const std::string folder = fleet.folder / "authority";
  for (const std::string& file : {folder + "/authority.pem", folder + "/authority.key"}) {
    const std::string key = *world::read_text(folder + "/authority.key");
    const std::string text = *world::read_text(file);
    ASSERT_EQ(unlink(file.c_str()), 0);
    const auto opened = Authority::open(folder);
    ASSERT_FALSE(opened) << file;
    EXPECT_NE(opened.error().to_text().find("restore both from a backup"), std::string::npos)
        << opened.error().to_text();
    ASSERT_TRUE(world::write_private_text(file, text));
    EXPECT_EQ(*world::read_text(folder + "/authority.key"), key);
    EXPECT_EQ(Authority::open(folder)->fingerprint(), fleet.authority.fingerprint());
  }
}

TEST(AuthorityTest, ItsFingerprintIsEnoughToRecogniseTheServer) {
  const TestFleet fleet, other;
  RunningServer server(echo_certificate, {}, "127.0.0.1:0", fleet.server_files());
  const auto answer = ask_server({.url = server.url(), .fingerprint = fleet.authority.fingerprint()});
  ASSERT_TRUE(answer) << answer.error().to_text();
  EXPECT_EQ(answer->body, "no certificate");
  EXPECT_TRUE(ask_server({.url = server.url(), .ca_file = fleet.authority.certificate_file()}));
  const auto refused =
      ask_server({.url = server.url(), .token = "geheim", .fingerprint = other.authority.fingerprint()});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(refused.error().message.find("no authority that it names has the expected"), std::string::npos)
      << refused.error().to_text();
}

TEST(AuthorityTest, NamesAndDatesOfTheServerCount) {
  const TestFleet fleet;
  RunningServer elsewhere(echo_certificate, {}, "127.0.0.1:0", fleet.server_files(1h, {"head.example"}));
  const auto other_name = ask_server({.url = elsewhere.url(), .fingerprint = fleet.authority.fingerprint()});
  ASSERT_FALSE(other_name);
  EXPECT_EQ(other_name.error().message, "the certificate of 127.0.0.1 does not include the name '127.0.0.1'");
  RunningServer old(echo_certificate, {}, "127.0.0.1:0", fleet.server_files(std::chrono::seconds(-60)));
  const auto expired = ask_server({.url = old.url(), .fingerprint = fleet.authority.fingerprint()});
  ASSERT_FALSE(expired);
  EXPECT_EQ(expired.error().message, "the certificate of 127.0.0.1 has expired");
}

TEST(AuthorityTest, AnAuthorityWhoseKeyIsNotKnownCannotBeBorrowed) {
  // The server presents the right authority, but a certificate that another authority has signed.
  const TestFleet fleet, thief;
  const TlsFiles files = thief.server_files();
  const std::string chain = *world::read_text(files.certificate_file);
  ASSERT_TRUE(world::write_text(files.certificate_file, chain + fleet.authority.certificate()));
  RunningServer server([](const Request&, const Responder&) { FAIL() << "a request came"; }, {}, "127.0.0.1:0", files);
  EXPECT_FALSE(ask_server({.url = server.url(), .fingerprint = fleet.authority.fingerprint()}));
}

TEST(AuthorityTest, AClientIsKnownByItsCertificate) {
  const TestFleet fleet;
  RunningServer server(echo_certificate, {}, "127.0.0.1:0", fleet.server_files());
  const std::string fingerprint = fleet.authority.fingerprint(), file = fleet.client_file("berth:credential:t1:x");
  auto client = Client::create({.url = server.url(), .fingerprint = fingerprint, .certificate_file = file});
  ASSERT_TRUE(client) << client.error().to_text();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client->request("GET", "/")->body, "berth:credential:t1:x");
  EXPECT_EQ(server.connections(), 1u) << "the connection is kept";
  fleet.client_file("berth:credential:t2:x");
  EXPECT_EQ(client->request("GET", "/")->body, "berth:credential:t1:x");
  server.join(1s);
  RunningServer next(echo_certificate, {}, server.address(), fleet.server_files());
  EXPECT_EQ(client->request("GET", "/")->body, "berth:credential:t2:x")
      << "the file is read again for a new connection";
}

TEST(AuthorityTest, ACertificateOfAnotherAuthorityIsNone) {
  const TestFleet fleet, thief;
  RunningServer server(echo_certificate, {}, "127.0.0.1:0", fleet.server_files());
  const auto answer = ask_server({.url = server.url(),
                                  .fingerprint = fleet.authority.fingerprint(),
                                  .certificate_file = thief.client_file("berth:credential:t1:x")});
  ASSERT_TRUE(answer) << answer.error().to_text();
  EXPECT_EQ(answer->body, "no certificate");
}

TEST(AuthorityTest, AnExpiredCertificateIsTold) {
  const TestFleet fleet;
  std::optional<PeerCertificate> seen;
  RunningServer server(
      [&](const Request& request, const Responder& responder) {
        seen = request.peer.certificate;
        responder.send({200});
      },
      {}, "127.0.0.1:0", fleet.server_files());
  ASSERT_TRUE(ask_server({.url = server.url(),
                          .fingerprint = fleet.authority.fingerprint(),
                          .certificate_file = fleet.client_file("berth:credential:t1:x", std::chrono::seconds(-60))}));
  ASSERT_TRUE(seen);
  EXPECT_LT(seen->expires_ms, world::wall_time_ms());
}

TEST(AuthorityTest, ACertificateOfAClientDoesNotServe) {
  const TestFleet fleet;
  const std::string file = fleet.client_file("berth:credential:t1:x");
  const std::string chain = *world::read_text(file) + fleet.authority.certificate();
  ASSERT_TRUE(world::write_private_text(file, chain));
  RunningServer server([](const Request&, const Responder&) { FAIL() << "a request came"; }, {}, "127.0.0.1:0",
                       TlsFiles{file, file});
  EXPECT_FALSE(ask_server({.url = server.url(), .fingerprint = fleet.authority.fingerprint()}));
  EXPECT_FALSE(ask_server({.url = server.url(), .ca_file = fleet.authority.certificate_file()}));
}

TEST(AuthorityTest, OnlyARequestSignedWithItsOwnKeyIsSigned) {
  const TestFleet fleet;
  const auto sign = [&](const std::string& request) {
    return fleet.authority.sign(request, {"a", "node", "berth:x"}, 1h);
  };
  const std::string request = make_certificate_request()->request;
  EXPECT_TRUE(sign(request));
  for (const std::string& bad : {std::string(), std::string("nonsense"), fleet.authority.certificate(),
                                 request.substr(0, request.size() / 2), std::string(2'000, 'A')})
    EXPECT_EQ(sign(bad).error().code, ErrorCode::invalid_argument) << bad;
  std::string changed = request;
  const std::size_t middle = changed.size() - 60;  // within the signature
  changed[middle] = changed[middle] == 'A' ? 'B' : 'A';
  EXPECT_FALSE(sign(changed));
}

TEST(AuthorityTest, RenewalIsDueAfterAThirdOfTheTime) {
  const TestFleet fleet;
  const auto times = certificate_times(fleet.client_file("berth:x", 3h));
  ASSERT_TRUE(times);
  const std::uint64_t now = world::wall_time_ms() / 1000;
  EXPECT_FALSE(times->is_renewal_due(now));
  EXPECT_FALSE(times->is_renewal_due(now + 3000));
  EXPECT_TRUE(times->is_renewal_due(now + 3700));
  EXPECT_TRUE(times->is_renewal_due(now + 100'000));
}

}  // namespace
}  // namespace berth::http
