#include "http/tls.hpp"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <algorithm>

namespace berth::http {
namespace {

void set_versions(asio::ssl::context& context) {
  SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.native_handle(), SSL_OP_NO_RENEGOTIATION);
}

Error file_error(const std::string& what, const std::string& file, const ErrorValue& error) {
  return {ErrorCode::invalid_argument, "cannot use " + what + " '" + file + "': " + error.message()};
}

// One hash for all keys, so that a key fits every handshake.
void set_proving(asio::ssl::context& context) {
  SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_3_VERSION);
  SSL_CTX_set_ciphersuites(context.native_handle(), "TLS_AES_128_GCM_SHA256");
  SSL_CTX_set_num_tickets(context.native_handle(), 0);
}

int key_of_index() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

int proof_index() {
  static const int index = SSL_CTX_get_ex_new_index(
      0, nullptr, nullptr, nullptr,
      [](void*, void* proof, CRYPTO_EX_DATA*, int, long, void*) { delete static_cast<Proof*>(proof); });
  return index;
}

int credential_index() {
  static const int index = SSL_get_ex_new_index(
      0, nullptr, nullptr, nullptr,
      [](void*, void* credential, CRYPTO_EX_DATA*, int, long, void*) { delete static_cast<std::string*>(credential); });
  return index;
}

unsigned copy_key(const std::string& key, unsigned char* into, unsigned bytes_max) {
  if (key.size() > bytes_max) return 0;
  std::copy(key.begin(), key.end(), into);
  return static_cast<unsigned>(key.size());
}

// A client may name several identities. The first that is known counts, also in the second flight of a handshake.
unsigned find_key(SSL* tls, const char* identity, unsigned char* into, unsigned bytes_max) {
  const auto& key_of = *static_cast<const KeyOf*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(tls), key_of_index()));
  const std::optional<KnownKey> known = key_of(identity);
  if (!known) return 0;
  const auto* const before = static_cast<const std::string*>(SSL_get_ex_data(tls, credential_index()));
  if (before && *before != known->credential) return 0;
  if (!before) SSL_set_ex_data(tls, credential_index(), new std::string(known->credential));
  return copy_key(known->key, into, bytes_max);
}

unsigned give_key(SSL* tls, const char*, char* identity, unsigned identity_bytes_max, unsigned char* into,
                  unsigned bytes_max) {
  const auto& proof = *static_cast<const Proof*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(tls), proof_index()));
  if (proof.identity.size() + 1 > identity_bytes_max) return 0;
  std::copy(proof.identity.begin(), proof.identity.end(), identity);
  identity[proof.identity.size()] = '\0';
  return copy_key(proof.key, into, bytes_max);
}

bool is_address(const std::string& host) {
  unsigned char bytes[16];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 || inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

}  // namespace

Result<std::shared_ptr<asio::ssl::context>> server_tls(const TlsFiles& files) {
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  set_versions(*context);
  ErrorValue error;
  context->use_certificate_chain_file(files.certificate_file, error);
  if (error) return file_error("the certificate", files.certificate_file, error);
  context->use_private_key_file(files.key_file, asio::ssl::context::pem, error);
  if (error) {
    Error refused = file_error("the key", files.key_file, error);
    refused.advice = "it must be in PEM form, without a password, and belong to the certificate";
    return refused;
  }
  return context;
}

std::shared_ptr<asio::ssl::context> proving_server_tls(const KeyOf& key_of) {
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  set_proving(*context);
  SSL_CTX_set_ex_data(context->native_handle(), key_of_index(), const_cast<KeyOf*>(&key_of));
  SSL_CTX_set_psk_server_callback(context->native_handle(), find_key);
  return context;
}

std::string proven_credential(SSL* tls) {
  const auto* const proven = static_cast<const std::string*>(SSL_get_ex_data(tls, credential_index()));
  return proven && SSL_session_reused(tls) == 1 ? *proven : std::string();
}

std::shared_ptr<asio::ssl::context> proving_client_tls(const Proof& proof) {
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_client);
  set_proving(*context);
  // A certificate instead of a proof is not accepted, whoever signed it: no authority is trusted here.
  SSL_CTX_set_verify(context->native_handle(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_ex_data(context->native_handle(), proof_index(), new Proof(proof));
  SSL_CTX_set_psk_client_callback(context->native_handle(), give_key);
  return context;
}

bool has_proven_key(SSL* tls) { return SSL_session_reused(tls) == 1 && SSL_version(tls) == TLS1_3_VERSION; }

Error unproven_error(const std::string& url, const ErrorValue& error) {
  const bool is_plain = error.category() == asio::error::get_ssl_category() &&
                        (ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_WRONG_VERSION_NUMBER ||
                         ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_HTTP_REQUEST);
  if (is_plain)
    return {ErrorCode::unavailable, url + " answers, but does not prove that it knows this token",
            "it is a server of an older version, which is to be upgraded first, one with too many connections, or "
            "another program that listens on this port"};
  return {
      ErrorCode::unavailable, url + " does not prove that it knows this token",
      "the token is wrong, used or revoked (berth token add makes another), or another program listens on this port"};
}

Result<std::shared_ptr<asio::ssl::context>> client_tls(const ClientOptions& options) {
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_client);
  set_versions(*context);
  ErrorValue error;
  if (!options.fingerprint.empty()) {
    context->set_verify_mode(asio::ssl::verify_none, error);  // check_fingerprint() compares it
    return context;
  }
  context->set_verify_mode(asio::ssl::verify_peer, error);
  if (options.ca_file.empty())
    context->set_default_verify_paths(error);
  else
    context->load_verify_file(options.ca_file, error);
  if (error) return file_error("the CA file", options.ca_file, error);
  return context;
}

bool expect_host(SSL* tls, const std::string& host, const ClientOptions& options) {
  const bool address = is_address(host);
  if (!address && SSL_set_tlsext_host_name(tls, host.c_str()) != 1) return false;
  if (!options.fingerprint.empty()) return true;
  if (address) return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), host.c_str()) == 1;
  SSL_set_hostflags(tls, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  return SSL_set1_host(tls, host.c_str()) == 1;
}

Result<void> check_fingerprint(SSL* tls, const std::string& host, const std::string& fingerprint) {
  if (fingerprint.empty()) return {};
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(SSL_get1_peer_certificate(tls), &X509_free);
  const std::string presented = fingerprint_of(certificate.get());
  if (presented == fingerprint) return {};
  return Error{ErrorCode::invalid_argument,
               "the certificate of " + host + " has the fingerprint " + presented + ", not the expected " + fingerprint,
               "find out why it changed before you trust it"};
}

Error handshake_error(SSL* tls, const std::string& host, const ErrorValue& error) {
  const long verified = SSL_get_verify_result(tls);
  const std::string certificate = "the certificate of " + host;
  switch (verified) {
    case X509_V_OK: break;
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return {ErrorCode::invalid_argument, certificate + " is for other names than '" + host + "'",
              "use a name that it is for, or give its fingerprint"};
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
      return {ErrorCode::invalid_argument, certificate + " is not signed by an authority that is trusted here",
              "give the CA file that signed it, or its fingerprint"};
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return {ErrorCode::invalid_argument, certificate + " has expired",
              "renew it, or check the clock of this machine"};
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return {ErrorCode::invalid_argument, certificate + " is not valid yet", "check the clock of this machine"};
    default:
      return {ErrorCode::invalid_argument,
              certificate + " is not accepted: " + X509_verify_cert_error_string(verified)};
  }
  if (error.category() == asio::error::get_ssl_category())
    return {ErrorCode::invalid_argument, host + " does not speak TLS as expected: " + error.message(),
            "is it a plain http:// address?"};
  return {ErrorCode::unavailable, host + " closed the connection during the TLS handshake"};
}

}  // namespace berth::http
