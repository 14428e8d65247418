#include "cli/text/proxy_text.hpp"

#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace berth::cli {
namespace {

const std::string two_gateways =
    R"({"gateways":[{"name":"head","address":"127.0.0.1:8081"},{"name":"edge","address":":8081"}]})";

TEST(ProxyText, NamesEveryGatewayAndChecksCertificatesOfThoseThatHaveOne) {
  const auto answer = boost::json::parse(two_gateways).get_object();
  const std::string haproxy = proxy_text(ProxyFormat::haproxy, answer, "");
  EXPECT_NE(haproxy.find("    server head 127.0.0.1:8081 check\n"), haproxy.npos) << haproxy;
  EXPECT_NE(haproxy.find("    server edge edge:8081 check ssl verify required"), haproxy.npos) << haproxy;
  const std::string nginx = proxy_text(ProxyFormat::nginx, answer, "");
  EXPECT_NE(nginx.find("    server edge:8081;\n"), nginx.npos) << nginx;
  EXPECT_NE(nginx.find("proxy_pass https://berth;"), nginx.npos) << nginx;
  for (const char* line : {"proxy_set_header Connection $berth_connection;", "proxy_set_header Upgrade $http_upgrade;",
                           "proxy_buffering off;", "keepalive 32;"})
    EXPECT_NE(nginx.find(line), nginx.npos) << line << nginx;
  EXPECT_NE(haproxy.find("timeout tunnel 1h"), haproxy.npos) << haproxy;
  EXPECT_EQ(proxy_text(ProxyFormat::nginx, {}, "").front(), '#') << "without a gateway it is a comment";
}

TEST(ProxyText, PrometheusReadsTheServerAndNeedsATokenFromAnotherMachine) {
  EXPECT_EQ(proxy_text(ProxyFormat::prometheus, {}, ""),
            "scrape_configs:\n  - job_name: berth\n    scheme: http\n    static_configs:\n"
            "      - targets: [\"127.0.0.1:8080\"]  # or the address of berth serve --listen\n");
  const std::string other = proxy_text(ProxyFormat::prometheus, {}, "https://head:8443");
  EXPECT_NE(other.find("targets: [\"head:8443\"]"), other.npos) << other;
  EXPECT_NE(other.find("credentials_file"), other.npos) << other;
  EXPECT_FALSE(proxy_format_named("apache"));
}

}  // namespace
}  // namespace berth::cli
