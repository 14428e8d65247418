#include "server/access.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace berth::server {
namespace {

using fleet::Role;
using Credentials = std::map<std::string, fleet::Credential>;

http::Request with_cookie(const std::string& cookie) {
  http::Request request;
  request.headers.add("cookie", "a=b; " + cookie);
  return request;
}

TEST(Access, ASessionOfThePageReadsWhateverItsTokenMay) {
  Access access("ann", "token", "/run/a");
  const std::string cookie = access.open_session(*access.who_has("token", {}, 0), TimePoint{});
  const auto who = access.who(with_cookie(access.cookie_name() + "=" + cookie), {}, 0);
  ASSERT_TRUE(who);
  EXPECT_EQ(who->role, Role::read);
  EXPECT_EQ(who->actor, "user:ann");
}

TEST(Access, TheCookiesOfTwoServersOnOneHostHaveDifferentNames) {
  Access a("ann", "token", "/run/a"), b("bob", "token", "/run/b");
  EXPECT_NE(a.cookie_name(), b.cookie_name());
  EXPECT_EQ(a.cookie_name(), Access("ann", "another token", "/run/a").cookie_name()) << "as before a restart";
  const std::string of_a = a.cookie_name() + "=" + a.open_session({}, TimePoint{});
  const std::string of_b = b.cookie_name() + "=" + b.open_session({}, TimePoint{});
  EXPECT_TRUE(a.who(with_cookie(of_b + "; " + of_a), {}, 0));
  EXPECT_TRUE(b.who(with_cookie(of_b + "; " + of_a), {}, 0));
  EXPECT_FALSE(a.who(with_cookie(of_b), {}, 0));
}

TEST(Access, ManySessionsOfOneTokenEndNoneOfAnother) {
  Access access("ann", "token", "/run/a");
  Credentials credentials;
  credentials["t1"].id = "t1";
  const auto open = [&](const std::string& credential) {
    return access.cookie_name() + "=" + access.open_session({Role::read, "x", credential, {}}, TimePoint{});
  };
  const std::string own = open("");
  std::vector<std::string> others;
  for (int i = 0; i < 1500; ++i) others.push_back(open("t1"));
  EXPECT_TRUE(access.who(with_cookie(own), credentials, 0));
  EXPECT_TRUE(access.who(with_cookie(others.back()), credentials, 0));
  EXPECT_TRUE(access.who(with_cookie(others[others.size() - 20]), credentials, 0)) << "the newest stay";
  EXPECT_FALSE(access.who(with_cookie(others[others.size() - 21]), credentials, 0));
}

}  // namespace
}  // namespace berth::server
