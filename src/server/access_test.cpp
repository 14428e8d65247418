#include "server/access.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "http/secret.hpp"

namespace berth::server {
namespace {

using fleet::Role;
using Credentials = std::map<std::string, fleet::Credential>;

http::Request with_cookie(const std::string& cookie) {
  http::Request request;
  request.headers.add("cookie", "a=b; " + cookie);
  return request;
}

fleet::Credential credential(const std::string& id, Role role, const std::string& token) {
  fleet::Credential credential;
  credential.id = id;
  credential.role = role;
  credential.sha256 = http::sha256(token);
  return credential;
}

TEST(Access, EachRoleMayWhatItIsFor) {
  using enum Role;
  const std::map<Role, std::vector<Role>> allowed{
      {read, {read}}, {operate, {read, operate}}, {deploy, {read, operate, deploy}}, {node, {node}}, {join, {join}}};
  for (const auto& [role, roles] : allowed) {
    for (const Role needed : {read, operate, deploy, node, join}) {
      EXPECT_EQ(may({role, "x", {}, {}}, needed), std::find(roles.begin(), roles.end(), needed) != roles.end())
          << fleet::to_string(role) << " for " << fleet::to_string(needed);
    }
  }
}

TEST(Access, ATokenHasItsRoleUntilItExpiresOrIsRevoked) {
  const Access access("ann", "token", "/run/a");
  Credentials credentials{{"t1", credential("t1", Role::operate, "secret")}};
  http::Request request;
  request.headers.add("authorization", "Bearer secret");
  ASSERT_TRUE(access.who(request, credentials, 5));
  EXPECT_EQ(access.who(request, credentials, 5)->role, Role::operate);
  EXPECT_EQ(access.who(request, credentials, 5)->actor, "token:t1");
  credentials["t1"].expires_ms = 6;
  EXPECT_TRUE(access.who(request, credentials, 5));
  EXPECT_FALSE(access.who(request, credentials, 6));
  EXPECT_FALSE(access.who(request, {}, 5)) << "the token was revoked";
  EXPECT_FALSE(access.who_has("Secret", credentials, 5));
  EXPECT_FALSE(access.who_has("", credentials, 5));
}

TEST(Access, AConnectionThatProvesATokenHasItsRole) {
  const Access access("ann", "token", "/run/a");
  Credentials credentials{{"t1", credential("t1", Role::operate, "secret")}};
  const auto known = access.key_of(http::proof_of(http::sha256("secret")).identity, credentials);
  ASSERT_TRUE(known);
  EXPECT_EQ(known->key, http::proof_of(http::sha256("secret")).key);
  EXPECT_FALSE(access.key_of(http::proof_of(http::sha256("other")).identity, credentials));
  EXPECT_FALSE(access.key_of("", credentials));
  http::Request request;
  request.peer.credential = known->credential;
  ASSERT_TRUE(access.who(request, credentials, 5));
  EXPECT_EQ(access.who(request, credentials, 5)->actor, "token:t1");
  credentials["t1"].expires_ms = 5;
  EXPECT_FALSE(access.who(request, credentials, 5));
  EXPECT_FALSE(access.who(request, {}, 1)) << "the token was revoked";
  request.peer.credential = access.key_of(http::proof_of(http::sha256("token")).identity, {})->credential;
  EXPECT_EQ(access.who(request, {}, 5)->actor, "user:ann") << "the token of the server's own user";
}

TEST(Access, ACertificateSpeaksForItsTokenUntilOneOfTheTwoEnds) {
  const Access access("ann", "token", "/run/a");
  Credentials credentials{{"t1", credential("t1", Role::node, "secret")}};
  credentials["t1"].node = NodeId("a");
  http::Request request;
  request.peer.certificate = http::PeerCertificate{certificate_name(credentials["t1"]), 10};
  ASSERT_TRUE(access.who(request, credentials, 9));
  EXPECT_EQ(access.who(request, credentials, 9)->actor, "node:a");
  EXPECT_EQ(access.who(request, credentials, 9)->node, NodeId("a"));
  EXPECT_FALSE(access.who(request, credentials, 10)) << "the certificate has expired";
  EXPECT_FALSE(access.who(request, {}, 9)) << "the token was revoked";
  credentials["t1"].expires_ms = 5;
  EXPECT_FALSE(access.who(request, credentials, 9)) << "the token has expired";
  // After a restore, ids are reused.
  credentials["t1"] = credential("t1", Role::deploy, "another");
  EXPECT_FALSE(access.who(request, credentials, 9));
  for (const char* uri :
       {"", "t1", "berth:credential:t1", "berth:credential:t1:", "berth:credential:", "berth:x:t1:y"}) {
    request.peer.certificate = http::PeerCertificate{uri, 10};
    EXPECT_FALSE(access.who(request, credentials, 9)) << uri;
  }
}

TEST(Access, ATokenToJoinThatNamesANodeIsNotThatNodes) {
  const Access access("ann", "token", "/run/a");
  Credentials credentials{{"t1", credential("t1", Role::join, "secret")}};
  credentials["t1"].node = NodeId("a");
  EXPECT_EQ(access.who_has("secret", credentials, 1)->actor, "token:t1");
  EXPECT_EQ(access.who_has("secret." + std::string(64, 'f'), credentials, 1)->role, Role::join)
      << "with the fingerprint, as it is printed";
}

TEST(Access, OnTheSocketOnlyTheServersUserAndRootNeedNoToken) {
  const Access access("ann", "token", "/run/a");
  http::Request request;
  EXPECT_FALSE(access.who(request, {}, 0)) << "the request did not come over the socket";
  for (const std::uint32_t user : {::geteuid(), 0U}) {
    request.peer.unix_uid = user;
    ASSERT_TRUE(access.who(request, {}, 0)) << user;
    EXPECT_EQ(access.who(request, {}, 0)->role, Role::deploy);
  }
  request.peer.unix_uid = ::geteuid() + 12345;
  EXPECT_FALSE(access.who(request, {}, 0));
}

TEST(Access, ASessionEndsWithItsTimeAndWithItsToken) {
  Access access("ann", "token", "/run/a");
  Credentials credentials{{"t1", credential("t1", Role::deploy, "secret")}};
  const std::string cookie = access.open_session(*access.who_has("secret", credentials, 0), TimePoint{}).cookie;
  const http::Request request = with_cookie(access.cookie_name() + "=" + cookie);
  EXPECT_TRUE(access.who(request, credentials, 0));
  EXPECT_FALSE(access.who(request, {}, 0)) << "its token was revoked";
  access.forget_old_sessions(TimePoint{} + std::chrono::hours(12) - Duration(1));
  EXPECT_TRUE(access.who(request, credentials, 0));
  access.forget_old_sessions(TimePoint{} + std::chrono::hours(12));
  EXPECT_FALSE(access.who(request, credentials, 0));
}

TEST(Access, ACookieReadsAndWithItsSecondSecretItMayDoWhatItsTokenMay) {
  Access access("ann", "token", "/run/a");
  const Credentials credentials{{"t1", credential("t1", Role::operate, "other")}};
  const auto session = access.open_session(*access.who_has("token", {}, 0), TimePoint{});
  const auto of_operator = access.open_session(*access.who_has("other", credentials, 0), TimePoint{});
  http::Request request = with_cookie(access.cookie_name() + "=" + session.cookie);
  const auto who = access.who(request, {}, 0);
  ASSERT_TRUE(who);
  EXPECT_EQ(who->role, Role::read);
  EXPECT_EQ(who->token_role, Role::deploy);
  EXPECT_EQ(who->actor, "user:ann");
  for (const std::string& wrong : {std::string(), session.cookie, of_operator.secret, session.secret + "x"}) {
    request.headers.set("berth-session-secret", wrong);
    EXPECT_EQ(access.who(request, {}, 0)->role, Role::read) << wrong;
  }
  request.headers.set("berth-session-secret", session.secret);
  EXPECT_EQ(access.who(request, {}, 0)->role, Role::deploy);
  EXPECT_TRUE(access.who(request, {}, 0)->is_session);
  http::Request secret_alone;
  secret_alone.headers.add("berth-session-secret", session.secret);
  EXPECT_FALSE(access.who(secret_alone, {}, 0));
  request = with_cookie(access.cookie_name() + "=" + of_operator.cookie);
  request.headers.add("berth-session-secret", of_operator.secret);
  EXPECT_EQ(access.who(request, credentials, 0)->role, Role::operate);
  EXPECT_FALSE(access.who(request, {}, 0)) << "its token was revoked";
}

TEST(Access, TheCookiesOfTwoServersOnOneHostHaveDifferentNames) {
  Access a("ann", "token", "/run/a"), b("bob", "token", "/run/b");
  EXPECT_NE(a.cookie_name(), b.cookie_name());
  EXPECT_EQ(a.cookie_name(), Access("ann", "another token", "/run/a").cookie_name()) << "as before a restart";
  const std::string of_a = a.cookie_name() + "=" + a.open_session({}, TimePoint{}).cookie;
  const std::string of_b = b.cookie_name() + "=" + b.open_session({}, TimePoint{}).cookie;
  EXPECT_TRUE(a.who(with_cookie(of_b + "; " + of_a), {}, 0));
  EXPECT_TRUE(b.who(with_cookie(of_b + "; " + of_a), {}, 0));
  EXPECT_FALSE(a.who(with_cookie(of_b), {}, 0));
}

TEST(Access, ManySessionsOfOneTokenEndNoneOfAnother) {
  Access access("ann", "token", "/run/a");
  Credentials credentials;
  credentials["t1"].id = "t1";
  const auto open = [&](const std::string& credential) {
    return access.cookie_name() + "=" + access.open_session({Role::read, "x", credential, {}}, TimePoint{}).cookie;
  };
  const std::string own = open("");
  std::vector<std::string> others;
  for (int i = 0; i < 1500; ++i) others.push_back(open("t1"));
  EXPECT_TRUE(access.who(with_cookie(own), credentials, 0));
  EXPECT_TRUE(access.who(with_cookie(others.back()), credentials, 0));
  EXPECT_TRUE(access.who(with_cookie(others[others.size() - 20]), credentials, 0)) << "the newest cookies stay valid";
  EXPECT_FALSE(access.who(with_cookie(others[others.size() - 21]), credentials, 0));
}

}  // namespace
}  // namespace berth::server
