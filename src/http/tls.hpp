// TLS contexts (1.2 and 1.3) of the server and the client, and what a failed handshake means in words.
#pragma once

#include <memory>
#include <string>

#include "berth/result.hpp"
#include "http/asio.hpp"
#include "http/client.hpp"
#include "http/server.hpp"

namespace berth::http {

// invalid_argument: a file is missing or wrong, or they do not belong together.
Result<std::shared_ptr<asio::ssl::context>> server_tls(const TlsFiles& files);

// invalid_argument: the CA file.
Result<std::shared_ptr<asio::ssl::context>> client_tls(const ClientOptions& options);
// Before the handshake: `host` is the name that the certificate must have, unless there is a fingerprint.
bool expect_host(SSL* tls, const std::string& host, const ClientOptions& options);
// After the handshake. invalid_argument: not the certificate with this fingerprint.
Result<void> check_fingerprint(SSL* tls, const std::string& host, const std::string& fingerprint);
Error handshake_error(SSL* tls, const std::string& host, const ErrorValue& error);

// 64 digits in lower case; empty for a null pointer.
std::string fingerprint_of(const X509* certificate);

}  // namespace berth::http
