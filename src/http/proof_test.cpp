// Connections over plain http:// on which client and server prove that they know a token, without sending it.
#include "http/certificate.hpp"
#include "http/running_server.hpp"
#include "http/secret.hpp"

namespace berth::http {
namespace {

using namespace test;

void echo_credential(const Request& request, const Responder& responder) {
  const auto header = request.headers.get("authorization");
  responder.send({200, {}, request.peer.credential + "|" + std::string(header.value_or("no header"))});
}

// Options of a server that knows one token.
ServerOptions knowing(const std::string& token) {
  ServerOptions options;
  options.key_of = [token](std::string_view identity) -> std::optional<KnownKey> {
    const Proof proof = proof_of(sha256(token));
    if (identity != proof.identity) return std::nullopt;
    return KnownKey{"t1", proof.key};
  };
  return options;
}

Result<Response> get_with_token(const std::string& address, const std::string& token) {
  return Client::create({.url = "http://" + address, .token = token})->request("GET", "/");
}

TEST(Proof, AServerThatKnowsTheTokenKnowsWhoAsks) {
  RunningServer server(echo_credential, knowing("berth_secret"));
  auto client = Client::create({.url = server.url(), .token = "berth_secret"});
  for (int i = 0; i < 3; ++i) {
    const auto answer = client->request("POST", "/", std::string(100'000, 'x'));
    ASSERT_TRUE(answer) << answer.error().to_text();
    EXPECT_EQ(answer->body, "t1|no header");
  }
  EXPECT_EQ(server.connections(), 1u) << "the connection is kept";
  EXPECT_EQ(get_with_token(server.address(), "berth_secret." + std::string(64, 'a'))->body, "t1|no header")
      << "a fingerprint belongs to TLS alone";
}

TEST(Proof, PlainRequestsAreServedBesideIt) {
  RunningServer server(echo_credential, knowing("berth_secret"));
  EXPECT_EQ(client_of(server).request("GET", "/")->body, "|no header");
  RawConnection curl(server.address());
  curl.send(get("/", "Authorization: Bearer berth_secret\r\n"));
  EXPECT_NE(curl.read_until("|Bearer berth_secret").find("200 OK"), std::string::npos);
}

TEST(Proof, ASessionBeginsOnlyWithTheRightToken) {
  RunningServer server(echo_credential, knowing("berth_secret"));
  const auto answer = get_with_token(server.address(), "berth_other");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::unavailable);
  EXPECT_EQ(answer.error().message, server.url() + " does not prove that it knows this token");
  EXPECT_TRUE(eventually([&] { return server.connections() == 0; }));
}

TEST(Proof, AnIdentityIsNotAKey) {
  // Knows the identity, which is sent in clear text, but has another key.
  ServerOptions options;
  options.key_of = [](std::string_view identity) { return KnownKey{std::string(identity), std::string(32, 'k')}; };
  RunningServer fake([](const Request&, const Responder&) { FAIL() << "a request came"; }, options);
  const auto answer = get_with_token(fake.address(), "berth_secret");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::unavailable);
}

TEST(Proof, ACertificateIsNotAProof) {
  const Folder folder;
  const TlsFiles files{folder / "pem", folder / "key"};
  const std::vector<std::string> names{"127.0.0.1"};
  ASSERT_TRUE(write_self_signed_certificate(names, files.certificate_file, files.key_file));
  RunningServer fake([](const Request&, const Responder&) { FAIL() << "a request came"; }, {}, "127.0.0.1:0", files);
  const auto answer = get_with_token(fake.address(), "berth_secret");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::unavailable);
}

TEST(Proof, IsTakenOverTlsOnlyWhereTheServerSaysSo) {
  const Folder folder;
  const TlsFiles files{folder / "pem", folder / "key"};
  const std::vector<std::string> names{"127.0.0.1"};
  ASSERT_TRUE(write_self_signed_certificate(names, files.certificate_file, files.key_file));
  ServerOptions options = knowing("berth_secret");
  {
    RunningServer server(echo_credential, options, "127.0.0.1:0", files);
    EXPECT_FALSE(get_with_token(server.address(), "berth_secret"));
  }
  options.takes_proofs_over_tls = true;
  RunningServer server(echo_credential, options, "127.0.0.1:0", files);
  EXPECT_EQ(get_with_token(server.address(), "berth_secret")->body, "t1|no header");
  EXPECT_FALSE(get_with_token(server.address(), "berth_other"));
  const auto plain = Client::create({.url = "https://" + server.address(), .ca_file = files.certificate_file});
  EXPECT_EQ(const_cast<Client&>(*plain).request("GET", "/")->body, "|no header")
      << "clients without a token check the certificate";
}

TEST(Proof, APlainServerGetsNeitherTokenNorRequest) {
  RunningServer plain([](const Request&, const Responder&) { FAIL() << "a request came"; });
  const auto answer = get_with_token(plain.address(), "berth_secret");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().message, plain.url() + " answers, but does not prove that it knows this token");
}

// A number of `bytes` bytes, the highest first, as TLS writes lengths.
std::string big_endian(std::size_t number, int bytes) {
  std::string out;
  while (bytes-- > 0) out += static_cast<char>(number >> (8 * bytes));
  return out;
}

std::string with_length(const std::string& text, int bytes = 2) { return big_endian(text.size(), bytes) + text; }

// The first message of a client of TLS 1.3 that names this many identities.
std::string hello_with_identities(int count) {
  std::string identities, binders;
  for (int i = 0; i < count; ++i) {
    identities += with_length("identity " + std::to_string(i)) + std::string(4, '\0');
    binders += with_length(std::string(32, 'b'), 1);
  }
  const auto extension = [](std::size_t kind, const std::string& text) {
    return big_endian(kind, 2) + with_length(text);
  };
  const std::string key = big_endian(0x1d, 2) + with_length(std::string(32, 'k'));
  const std::string extensions = extension(43, with_length("\x03\x04", 1)) +        // versions
                                 extension(10, with_length(big_endian(0x1d, 2))) +  // groups
                                 extension(51, with_length(key)) +                  // shares of keys
                                 extension(45, with_length("\x01", 1)) +            // kinds of exchange
                                 extension(41, with_length(identities) + with_length(binders));
  const std::string body = "\x03\x03" + std::string(32, 'r') + with_length("", 1) + with_length("\x13\x01") +
                           with_length(std::string(1, '\0'), 1) + with_length(extensions);
  return "\x16\x03\x01" + with_length("\x01" + with_length(body, 3));
}

// Each identity is compared with every credential of the server, and a client needs only one.
TEST(Proof, OfThousandsOfIdentitiesAFewAreLookedUp) {
  std::atomic<int> asked = 0;
  ServerOptions options;
  options.key_of = [&](std::string_view) -> std::optional<KnownKey> { return ++asked, std::nullopt; };
  RunningServer server(echo_credential, options);
  RawConnection stranger(server.address());
  stranger.send(hello_with_identities(200));
  stranger.read_all();
  EXPECT_TRUE(stranger.is_closed());
  EXPECT_GE(asked, 1);
  EXPECT_LE(asked, 4);
}

TEST(Proof, GarbageAndSilenceAreEnded) {
  ServerOptions options = knowing("berth_secret");
  options.limits.header_time = 150ms;
  RunningServer server(echo_credential, options);
  RawConnection silent(server.address()), half(server.address());
  half.send(std::string_view("\x16\x03\x01\x02\x00\x01\x00", 7));
  half.read_all();
  EXPECT_TRUE(half.is_closed());
  EXPECT_TRUE(silent.is_closed());
  EXPECT_TRUE(eventually([&] { return server.connections() == 0; }));
}

TEST(Secret, ATokenIsASecretAndAFingerprint) {
  const std::string secret = make_secret();
  EXPECT_EQ(secret.size(), 6u + 64);
  EXPECT_NE(secret, make_secret());
  for (const Token& token : {Token{secret, ""}, Token{secret, std::string(64, 'f')}}) {
    EXPECT_EQ(parse_token(to_text(token)).secret, token.secret);
    EXPECT_EQ(parse_token(to_text(token)).fingerprint, token.fingerprint);
  }
  EXPECT_NE(proof_of(sha256("a")).identity, proof_of(sha256("b")).identity);
  EXPECT_EQ(proof_of(sha256("a")).key.size(), 32u);
}

}  // namespace
}  // namespace berth::http
