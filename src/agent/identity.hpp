// How a node authenticates itself to its server and checks the server: files in the folder of the agent. A node that
// joins over https:// has a certificate of the fleet's authority (identity.pem, with its key), which it renews; over
// http:// on one machine it has a token (credential), which it never sends, but proves to know.
#pragma once

#include <string>

#include "berth/ids.hpp"
#include "berth/result.hpp"
#include "http/client.hpp"

namespace berth::agent {

// The server's reason for refusing the request. already_exists: status 409.
Error refusal_of(const http::Response& answer, const std::string& what);

struct Joining {
  http::ClientOptions server;  // its token is the join token, as printed
  std::string token_file;      // the file of the token, for messages
  NodeId node;
  std::string version;      // of this berth
  std::string folder;       // of the agent
  bool is_gateway = false;  // `node` is the name of a gateway
};
// Exchanges the token for the node's own credential. already_exists: the name is taken.
Result<void> join(const Joining& joining);
// Whether the last join used this token: a service starts with the same --token-file every time, and a token is
// valid for one join.
bool has_joined_with(const std::string& folder, const std::string& token);

// `server` with the credential of the node. `server` has the address and the certificate options of the command line,
// which take precedence over what the node received when it joined. not_found: the node has not joined, or joined
// with another kind of address.
Result<http::ClientOptions> known_server(http::ClientOptions server, const std::string& folder);

// Renews the certificate of `server` once a third of its lifetime is over. False: it is not due yet, or there is none.
Result<bool> renew_certificate(http::Client& client, const http::ClientOptions& server,
                               const std::string& path = "/api/v1/agent/certificate");

}  // namespace berth::agent
