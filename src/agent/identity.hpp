// How a node proves to its server who it is, and how it checks the server: files in the folder of the agent. A node
// that joins over https:// has a certificate of the fleet's authority (identity.pem, with its key), which it renews;
// over http:// on one machine it has a token (credential), which is proven and never sent.
#pragma once

#include <string>

#include "berth/ids.hpp"
#include "berth/result.hpp"
#include "http/client.hpp"

namespace berth::agent {

// Why the server did not answer as wanted, in its own words. already_exists: status 409.
Error refusal_of(const http::Response& answer, const std::string& what);

struct Joining {
  http::ClientOptions server;  // its token is one to join with, as it was printed
  std::string token_file;      // where the token is from, for messages
  NodeId node;
  std::string version;  // of this berth
  std::string folder;   // of the agent
};
// Exchanges the token for what the node has from then on. already_exists: the name is taken.
Result<void> join(const Joining& joining);
// Whether the last join was with this token: a service is started with the same --token-file again and again, and a
// token is good for one join.
bool has_joined_with(const std::string& folder, const std::string& token);

// Whether it has joined, and with what it asks from now on. `server` has the address, and what the command line says
// about its certificate, which counts more than what the node knows from joining. not_found: it has not joined, or not
// for this kind of address.
Result<http::ClientOptions> known_server(http::ClientOptions server, const std::string& folder);

// Renews the certificate of `server` where a third of its time is over. False: it is not time yet, or there is none.
Result<bool> renew_certificate(http::Client& client, const http::ClientOptions& server);

}  // namespace berth::agent
