#include "agent/identity.hpp"

#include <unistd.h>

#include <boost/json.hpp>

#include "agent/last_epoch.hpp"
#include "format/answer_error.hpp"
#include "format/json_reading.hpp"
#include "http/authority.hpp"
#include "http/secret.hpp"
#include "http/url.hpp"
#include "world/files.hpp"
#include "world/wall_time.hpp"

namespace berth::agent {

namespace json = boost::json;

namespace {

std::string certificate_file(const std::string& folder) { return folder + "/identity.pem"; }
std::string authority_file(const std::string& folder) { return folder + "/authority.pem"; }
std::string token_file(const std::string& folder) { return folder + "/credential"; }
std::string joined_with_file(const std::string& folder) { return folder + "/joined_with"; }

bool is_there(const std::string& file) { return ::access(file.c_str(), F_OK) == 0; }

struct Given {
  std::string token, certificate, authority;  // empty: not given
};
Result<Given> given_in(const std::string& body) {
  return format::read_document(body, "the answer", [](const json::value& value, const std::string& where) {
    const json::object& object = format::object_of(value, where);
    const auto text = [&](const char* key) {
      return format::optional_member(object, key, where, format::text_of).value_or("");
    };
    return Given{text("token"), text("certificate"), text("authority")};
  });
}

Error advised(Error error) {
  if (error.code == ErrorCode::unavailable && error.advice.empty())
    error.advice = "check the address, and whether berth serve is running there";
  return error;
}

}  // namespace

Error refusal_of(const http::Response& answer, const std::string& what) {
  const auto error = format::answer_error(answer.body);
  if (answer.status == 401 && !(error && error->message.find("expired") != std::string::npos))
    return {ErrorCode::unavailable, what + ": it does not know the credential of this node",
            "join again: give a token from berth token add join with --token-file"};
  return {answer.status == 409 ? ErrorCode::already_exists : ErrorCode::unavailable,
          what + ": " + (error ? error->message : "status " + std::to_string(answer.status)),
          error ? error->advice : ""};
}

bool has_joined_with(const std::string& folder, const std::string& token) {
  return world::read_text(joined_with_file(folder)).value_or("") == http::sha256(token) + "\n";
}

Result<void> join(const Joining& joining) {
  http::ClientOptions server = joining.server;
  const http::Token token = http::parse_token(server.token);
  const bool is_https = BERTH_TRY(http::parse_url(server.url)).kind == http::Url::Kind::https;
  const bool trusts_token = is_https && server.ca_file.empty() && server.fingerprint.empty();
  if (trusts_token) server.fingerprint = token.fingerprint;
  json::object body{{"node", joining.node.text()}, {"version", joining.version}};
  if (joining.is_gateway) body["gateway"] = true;
  http::CertificateRequest request;
  if (is_https) {
    request = BERTH_TRY(http::make_certificate_request());
    body["certificate_request"] = request.request;
  }
  http::Client client = BERTH_TRY(http::Client::create(server));
  // The answer uses up the token, so there must be room on the disk to save the answer.
  const std::string room = joining.folder + "/joining";
  BERTH_TRY(world::write_private_text(room, std::string(32 * 1024, '\n')));
  const auto asked = client.request("POST", "/api/v1/agent/join", format::document(body),
                                    {.headers = {{"content-type", "application/json"}}});
  ::unlink(room.c_str());
  if (!asked) return advised(asked.error());
  const http::Response& answer = *asked;
  const std::string refused = "the server refused to let " + joining.node.text() + " join";
  if (answer.status == 401)
    return Error{ErrorCode::unavailable,
                 refused + ": the token in " + joining.token_file + " is wrong, already used or expired",
                 std::string("create another with berth token add join") + (joining.is_gateway ? " --gateway" : "")};
  if (answer.status != 200) return refusal_of(answer, refused);
  const Given given = BERTH_TRY(given_in(answer.body));
  const std::string certificate = certificate_file(joining.folder), authority = authority_file(joining.folder),
                    own_token = token_file(joining.folder);
  // Written before the credential: if the agent is killed in between, it must not use the token again.
  forget_epoch(joining.folder);  // the epochs of another server may be lower
  BERTH_TRY(world::write_private_text(joined_with_file(joining.folder), http::sha256(joining.server.token) + "\n"));
  // Files of an earlier join are no longer valid.
  if (!given.certificate.empty()) {
    if (trusts_token && !server.fingerprint.empty())
      BERTH_TRY(world::write_private_text(authority, given.authority));
    else
      ::unlink(authority.c_str());
    BERTH_TRY(world::write_private_text(certificate, given.certificate + request.key));
    ::unlink(own_token.c_str());
    return {};
  }
  if (given.token.empty()) return Error{ErrorCode::io, refused + ": its answer has neither a token nor a certificate"};
  BERTH_TRY(world::write_private_text(own_token, given.token + "\n"));
  ::unlink(certificate.c_str());
  ::unlink(authority.c_str());
  return {};
}

Result<http::ClientOptions> known_server(http::ClientOptions server, const std::string& folder) {
  const bool is_https = BERTH_TRY(http::parse_url(server.url)).kind == http::Url::Kind::https;
  std::string token = world::read_text(token_file(folder)).value_or("");
  token.erase(token.find_last_not_of("\r\n") + 1);
  server.token = token;
  if (is_https && is_there(certificate_file(folder))) {
    server.token.clear();
    server.certificate_file = certificate_file(folder);
    if (server.ca_file.empty() && server.fingerprint.empty() && is_there(authority_file(folder)))
      server.ca_file = authority_file(folder);
    return server;
  }
  if (!server.token.empty()) return server;
  if (is_there(certificate_file(folder)))
    return Error{ErrorCode::not_found,
                 "this node has joined over https://, but " + server.url + " is not an https:// address",
                 "give the address it joined with, or a new token from berth token add join with --token-file"};
  return Error{ErrorCode::not_found, "this node has not joined yet",
               "give a file with a token from berth token add join with --token-file"};
}

Result<bool> renew_certificate(http::Client& client, const http::ClientOptions& server, const std::string& path) {
  if (server.certificate_file.empty()) return false;
  const http::CertificateTimes times = BERTH_TRY(http::certificate_times(server.certificate_file));
  if (!times.is_renewal_due(world::wall_time_ms() / 1000)) return false;
  const http::CertificateRequest request = BERTH_TRY(http::make_certificate_request());
  const http::Response answer = BERTH_TRY(
      client.request("POST", path, format::document({{"certificate_request", request.request}}),
                     {.headers = {{"content-type", "application/json"}}, .timeout = std::chrono::seconds(10)}));
  if (answer.status != 200) return refusal_of(answer, "the server does not renew the certificate of this node");
  const Given given = BERTH_TRY(given_in(answer.body));
  if (given.certificate.empty()) return Error{ErrorCode::io, "the server's answer has no certificate"};
  BERTH_TRY(world::write_private_text(server.certificate_file, given.certificate + request.key));
  return true;
}

}  // namespace berth::agent
