// TLS contexts (1.2 and 1.3) of the server and the client, and messages for failed handshakes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "berth/result.hpp"
#include "http/asio.hpp"
#include "http/client.hpp"
#include "http/secret.hpp"
#include "http/server.hpp"

namespace berth::http {

// invalid_argument: a file is missing or wrong, or they do not belong together.
Result<std::shared_ptr<asio::ssl::context>> server_tls(const TlsFiles& files);

// For connections that begin with a Proof (secret.hpp) in place of a certificate. `key_of` outlives the context.
using KeyOf = std::function<std::optional<KnownKey>(std::string_view identity)>;
std::shared_ptr<asio::ssl::context> proving_server_tls(const KeyOf& key_of);
// Makes a context with a server certificate also accept such connections.
void accept_proofs(asio::ssl::context& context, const KeyOf& key_of);
// The credential that the client has proven in the handshake; empty: none.
std::string proven_credential(SSL* tls);
std::shared_ptr<asio::ssl::context> proving_client_tls(const Proof& proof);
// After the handshake: whether the server has proven that it knows the key.
bool has_proven_key(SSL* tls);
Error unproven_error(const std::string& url, const ErrorValue& error);

// invalid_argument: the CA file.
Result<std::shared_ptr<asio::ssl::context>> client_tls(const ClientOptions& options);
// Before the handshake: `host` is the name that the certificate must have.
bool expect_host(SSL* tls, const std::string& host);
Error handshake_error(SSL* tls, const std::string& host, const ErrorValue& error);
// After the handshake of a server: the certificate of the client. Absent: it has not presented one from TlsFiles'
// authority.
std::optional<PeerCertificate> peer_certificate(SSL* tls);

// 64 digits in lower case; empty for a null pointer.
std::string fingerprint_of(const X509* certificate);

}  // namespace berth::http
