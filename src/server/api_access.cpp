// The part of the API for tokens, sessions of the page, certificates, and joining machines.
#include <boost/json.hpp>

#include "deployment/identifiers.hpp"
#include "fleet_format/fleet_json.hpp"
#include "http/secret.hpp"
#include "server/answers.hpp"
#include "server/api.hpp"
#include "server/views.hpp"
#include "world/wall_time.hpp"

namespace berth::server {

namespace json = boost::json;
using fleet::Role;

namespace {

constexpr std::size_t request_bytes_max = 3 * 1024;  // several times the size of a certificate request

std::string node_name_of(const json::value& value, const std::string& where) {
  std::string read = format::text_of(value, where);
  if (!deployment::is_name(read) || read.size() > 200)
    throw format::JsonError{
        where + " is not a valid name: use letters, digits, '.', '_' and '-', starting with a letter or digit"};
  return read;
}

std::string request_of(const json::value& value, const std::string& where) {
  std::string read = format::text_of(value, where);
  if (read.size() > request_bytes_max) throw format::JsonError{where + " is too long"};
  return read;
}

}  // namespace

fleet::Credential Api::new_credential(Role role, const Who& who, const std::string& secret) const {
  std::uint64_t number = 1;
  for (const auto& [id, credential] : leader_.state().credentials) {
    if (const auto used = read_number(std::string_view(id).substr(1), UINT64_MAX - 1))
      number = std::max(number, *used + 1);
  }
  fleet::Credential credential;
  credential.id = "t" + std::to_string(std::max(number, leader_.state().last_event + 1));
  credential.role = role;
  credential.sha256 = http::sha256(secret);
  credential.made_by = who.actor;
  credential.made_ms = world::wall_time_ms();
  return credential;
}

void Api::get_tokens(const Call& call) { send(call.responder, json::object{{"tokens", credentials_view(leader_)}}); }

void Api::post_token(const Call& call) {
  struct Body {
    Role role = Role::read;
    std::optional<std::uint64_t> seconds;
    std::optional<std::string> node, name;
    fleet::Credential of_call;  // additional fields of a caller's token
    bool for_gateway = false;
  };
  const auto body = read_body(call.request, [](const json::object& object, const std::string& where) {
    format::check_members(
        object,
        {"role", "ttl_s", "node", "gateway", "deployment", "name", "weight", "per_second", "concurrent_max", "explain"},
        where);
    Body read;
    read.role = format::word_of(format::member(object, "role", where),
                                {Role::read, Role::operate, Role::deploy, Role::join, Role::call}, where + ".role");
    read.seconds = format::optional_member(object, "ttl_s", where, format::whole_of);
    read.node = format::optional_member(object, "node", where, node_name_of);
    read.name = format::optional_member(object, "name", where, node_name_of);
    read.for_gateway = format::optional_member(object, "gateway", where, format::bool_of).value_or(false);
    if (read.node && read.role != Role::join)
      throw format::JsonError{where + ".node is given, but only a token of role join can be for a node"};
    if (read.for_gateway && read.role != Role::join)
      throw format::JsonError{where + ".gateway is given, but only a token of role join can be for a gateway"};
    if (read.node && read.for_gateway) throw format::JsonError{where + " has both a node and a gateway; give only one"};
    const auto count_of = [](const json::value& value, const std::string& at) {
      const std::uint64_t count = format::whole_of(value, at);
      if (count == 0 || count > 1'000'000) throw format::JsonError{at + " is not from 1 to 1000000"};
      return static_cast<std::uint32_t>(count);
    };
    for (const char* key : {"deployment", "weight", "per_second", "concurrent_max", "explain"}) {
      if (read.role != Role::call && object.contains(key))
        throw format::JsonError{where + "." + key + " is given, but only a token of role call can have it"};
    }
    if (read.role == Role::call) {
      read.of_call.deployment.emplace(node_name_of(format::member(object, "deployment", where), where + ".deployment"));
      read.of_call.weight = format::optional_member(object, "weight", where, count_of).value_or(1);
      read.of_call.per_second = format::optional_member(object, "per_second", where, count_of);
      read.of_call.concurrent_max = format::optional_member(object, "concurrent_max", where, count_of);
      read.of_call.may_explain = format::optional_member(object, "explain", where, format::bool_of).value_or(false);
    }
    return read;
  });
  if (!body) return send(call.responder, body.error());
  const bool is_call = body->role == Role::call;
  const std::optional<DeploymentId>& deployment = body->of_call.deployment;
  if (deployment && !leader_.state().desired.deployments.contains(*deployment))
    return send(call.responder, leader_.no_deployment(*deployment));
  // A key for requests is presented to gateways, never to a server, so it does not contain the server's fingerprint.
  http::Token token{http::make_secret(is_call ? http::call_prefix : http::control_prefix),
                    signing_.signs_server && !is_call ? signing_.authority->fingerprint() : ""};
  fleet::Credential credential = new_credential(body->role, call.who, token.secret);
  if (body->node) credential.node = NodeId(*body->node);
  credential.for_gateway = body->for_gateway;
  credential.deployment = deployment;
  credential.name = body->name;
  credential.weight = body->of_call.weight;
  credential.per_second = body->of_call.per_second;
  credential.concurrent_max = body->of_call.concurrent_max;
  credential.may_explain = body->of_call.may_explain;
  // A join token is short-lived.
  const std::uint64_t seconds = body->seconds.value_or(body->role == Role::join ? 3600 : 0);
  if (seconds > 0)
    credential.expires_ms = world::wall_time_ms() + std::min<std::uint64_t>(seconds, 10ULL * 365 * 86400) * 1000;
  if (const auto added = leader_.add_credential(credential, call.who.actor); !added)
    return send(call.responder, added.error());
  json::object out{{"id", credential.id}, {"role", to_string(credential.role)}, {"token", to_text(token)}};
  if (credential.node) out["node"] = credential.node->text();
  if (credential.for_gateway) out["gateway"] = true;
  if (credential.deployment) out["deployment"] = credential.deployment->text();
  if (credential.name) out["name"] = *credential.name;
  if (credential.may_explain) out["explain"] = true;
  if (credential.expires_ms) out["expires_at_ms"] = *credential.expires_ms;
  send(call.responder, out);
}

void Api::delete_token(const Call& call) {
  const std::string& id = call.part("ID");
  if (const auto removed = leader_.remove_credential(id, call.who.actor); !removed)
    return send(call.responder, removed.error());
  send(call.responder, json::object{{"removed", id}});
}

void Api::post_login(const Call& call) {
  const auto token = read_body(call.request, [](const json::object& object, const std::string& where) {
    format::check_members(object, {"token"}, where);
    return format::text_of(format::member(object, "token", where), where + ".token");
  });
  if (!token) return send(call.responder, token.error());
  const std::optional<Who> who = access_.who_has(*token, leader_.state().credentials, world::wall_time_ms());
  if (!who || !may(*who, Role::read))
    return call.responder.send(http::error_response(401, "not_logged_in",
                                                    "this token is not valid, or does not permit opening the page",
                                                    "berth token add read creates one that can"));
  const Access::Opened session = access_.open_session(*who, real_clock().now());
  http::Response answer =
      http::json_response(200, format::document({{"role", to_string(who->role)}, {"session_secret", session.secret}}));
  answer.headers.add("set-cookie", access_.cookie_name() + "=" + session.cookie +
                                       "; HttpOnly; SameSite=Strict; Path=/; Max-Age=43200" +
                                       (call.request.peer.is_tls ? "; Secure" : ""));
  call.responder.send(std::move(answer));
}

void Api::get_session(const Call& call) {
  send(call.responder,
       json::object{{"actor", call.who.actor},
                    {"role", to_string(call.who.role)},
                    {"token_role", to_string(call.who.is_session ? call.who.token_role : call.who.role)}});
}

void Api::post_logout(const Call& call) {
  access_.close_session(call.request);
  http::Response answer = http::json_response(200, format::document({}));
  answer.headers.add("set-cookie", access_.cookie_name() + "=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0");
  call.responder.send(std::move(answer));
}

Result<json::object> Api::certify(const std::string& request, const fleet::Credential& credential) const {
  if (!signing_.authority)
    return Error{ErrorCode::invalid_argument, "this server has no certificate authority",
                 "it creates one when it listens on an address that other machines can reach"};
  const http::CertificateSubject subject{
      credential.node ? credential.node->text() : credential.name.value_or(credential.id),
      std::string(to_string(credential.role)), certificate_name(credential)};
  std::string made = BERTH_TRY(signing_.authority->sign(request, subject, signing_.lifetime));
  return json::object{{"certificate", std::move(made)}, {"authority", signing_.authority->certificate()}};
}

void Api::post_certificate(const Call& call) {
  const auto request = read_body(call.request, [](const json::object& object, const std::string& where) {
    format::check_members(object, {"certificate_request"}, where);
    return request_of(format::member(object, "certificate_request", where), where + ".certificate_request");
  });
  if (!request) return send(call.responder, request.error());
  // A certificate has all rights of its token, and outlives a session.
  if (call.who.is_session)
    return call.responder.send(http::error_response(403, "forbidden", "a session of the page cannot get a certificate",
                                                    "use the token itself with berth login"));
  const auto found = leader_.state().credentials.find(call.who.credential);
  if (found == leader_.state().credentials.end())
    return call.responder.send(http::error_response(
        400, "invalid_argument", "only a token from berth token add can be exchanged for a certificate",
        "log in with such a token; on this machine the server's own user needs none"));
  const Result<json::object> made = certify(*request, found->second);
  if (!made) return send(call.responder, made.error());
  json::object out = *made;
  out["id"] = found->first;
  out["role"] = to_string(found->second.role);
  send(call.responder, out);
}

void Api::post_join(const Call& call) {
  struct Body {
    std::string node;
    std::optional<std::string> request;
    bool is_gateway = false;
  };
  const auto body = read_body(call.request, [](const json::object& object, const std::string& where) {
    return Body{node_name_of(format::member(object, "node", where), where + ".node"),
                format::optional_member(object, "certificate_request", where, request_of),
                format::optional_member(object, "gateway", where, format::bool_of).value_or(false)};
  });
  if (!body) return send(call.responder, body.error());
  const NodeId node(body->node);
  if (call.who.node && call.who.node != node)
    return call.responder.send(http::error_response(
        403, "forbidden", "this token is for node " + call.who.node->text() + ", not for " + node.text(),
        "berth token add join --node " + node.text() + " creates another"));
  const auto used = leader_.state().credentials.find(call.who.credential);
  if (used == leader_.state().credentials.end() || used->second.for_gateway != body->is_gateway)
    return call.responder.send(http::error_response(
        403, "forbidden", body->is_gateway ? "this token is for a node" : "this token is for a gateway",
        body->is_gateway ? "berth token add join --gateway creates one for a gateway"
                         : "berth token add join creates one for a node"));
  const std::string secret = http::make_secret();
  fleet::Credential credential = new_credential(body->is_gateway ? Role::gateway : Role::node, call.who, secret);
  if (body->is_gateway)
    credential.name = node.text();
  else
    credential.node = node;
  json::object out{{"node", node.text()}, {"id", credential.id}};
  // With a certificate, the node's only secret is its key, which it has created itself.
  if (body->request && signing_.authority) {
    Result<json::object> made = certify(*body->request, credential);
    if (!made) return send(call.responder, made.error());
    for (auto& [key, value] : *made) out[key] = std::move(value);
  } else {
    out["token"] = secret;
  }
  const Result<void> added = body->is_gateway ? leader_.add_gateway(credential, call.who.credential, call.who.actor)
                                              : leader_.add_node(node, credential, call.who.credential, call.who.actor);
  if (!added) return send(call.responder, added.error());
  send(call.responder, out);
}

}  // namespace berth::server
