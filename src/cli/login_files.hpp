// The files of `berth login` in the state folder of this user, per server: a certificate with its key, and the
// authority that authenticates the server.
#pragma once

#include <optional>
#include <string>

#include "berth/result.hpp"
#include "http/client.hpp"

namespace berth::cli {

struct Login {
  std::string folder;
  std::string certificate_file;
  std::string authority_file;  // empty: this machine trusts the authority of the server's certificate
};
// The path of the file, which need not exist. invalid_argument: the address is not https://.
Result<Login> login_for(const std::string& url);
// Returns nullopt if there is no login for this server.
std::optional<Login> find_login(const std::string& url);

// "certificate" and "authority" of the server's answer, for a new key.
struct NewLogin {
  std::string certificate_and_key, authority, id, role;
};
Result<NewLogin> ask_for_certificate(http::Client& client);

// Renews the certificate once a third of its lifetime is over. A failure is ignored: the next command tries again, or
// the request itself fails.
void renew_login(http::Client& client, const std::string& certificate_file);

}  // namespace berth::cli
