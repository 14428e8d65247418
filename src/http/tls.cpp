#include "http/tls.hpp"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <cstdint>

#include "http/x509.hpp"

namespace berth::http {
namespace {

void set_versions(asio::ssl::context& context) {
  SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.native_handle(), SSL_OP_NO_RENEGOTIATION);
}

Error file_error(const std::string& what, const std::string& file, const ErrorValue& error) {
  return {ErrorCode::invalid_argument, "cannot use " + what + " '" + file + "': " + error.message(),
          "give a file in PEM form that this user can read"};
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

int lookups_index() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

// A client may name several identities. The first known one is used, even in the second flight of a handshake. Each
// is compared with all credentials, so only a few are looked up: our clients name one.
unsigned find_key(SSL* tls, const char* identity, unsigned char* into, unsigned bytes_max) {
  constexpr std::intptr_t lookups_max = 4;
  const auto lookups = reinterpret_cast<std::intptr_t>(SSL_get_ex_data(tls, lookups_index()));
  if (lookups >= lookups_max) return 0;
  SSL_set_ex_data(tls, lookups_index(), reinterpret_cast<void*>(lookups + 1));
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

// Texts that belong to a context or a connection.
void free_text(void*, void* text, CRYPTO_EX_DATA*, int, long, void*) { delete static_cast<std::string*>(text); }
int expected_index() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, free_text);
  return index;
}
int presented_index() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, free_text);
  return index;
}

// The expected fingerprint is that of the server's certificate, which is then accepted without further checks, or of
// an authority in the server's chain: the certificate must then be signed by it, valid, and for this name.
int verify_fingerprint(X509_STORE_CTX* checked, void*) {
  SSL* const tls = static_cast<SSL*>(X509_STORE_CTX_get_ex_data(checked, SSL_get_ex_data_X509_STORE_CTX_idx()));
  const auto& expected = *static_cast<const std::string*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(tls), expected_index()));
  const std::string presented = fingerprint_of(X509_STORE_CTX_get0_cert(checked));
  if (presented == expected) return X509_STORE_CTX_set_error(checked, X509_V_OK), 1;
  STACK_OF(X509)* const sent = X509_STORE_CTX_get0_untrusted(checked);
  for (int i = 0; i < sk_X509_num(sent); ++i) {
    X509* const certificate = sk_X509_value(sent, i);
    if (fingerprint_of(certificate) != expected) continue;
    STACK_OF(X509)* const trusted = sk_X509_new_null();
    sk_X509_push(trusted, certificate);
    X509_STORE_CTX_set0_trusted_stack(checked, trusted);
    const int verified = X509_verify_cert(checked);
    sk_X509_free(trusted);
    return verified;
  }
  SSL_set_ex_data(tls, presented_index(), new std::string(presented));
  X509_STORE_CTX_set_error(checked, X509_V_ERR_APPLICATION_VERIFICATION);
  return 0;
}

// Accepts any certificate: an unacceptable one is rejected with the first request, so that the client gets the reason.
int note_result(X509_STORE_CTX* checked, void*) {
  X509_verify_cert(checked);
  return 1;
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
  SSL_CTX_set_num_tickets(context->native_handle(), 0);
  SSL_CTX_set_session_cache_mode(context->native_handle(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context->native_handle(), SSL_OP_NO_TICKET);
  if (files.client_authority_file.empty()) return context;
  context->load_verify_file(files.client_authority_file, error);
  if (error) return file_error("the authority", files.client_authority_file, error);
  SSL_CTX_set_client_CA_list(context->native_handle(), SSL_load_client_CA_file(files.client_authority_file.c_str()));
  SSL_CTX_set_verify(context->native_handle(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_cert_verify_callback(context->native_handle(), note_result, nullptr);
  return context;
}

std::optional<PeerCertificate> peer_certificate(SSL* tls) {
  const Certificate certificate(SSL_get1_peer_certificate(tls));
  const long verified = SSL_get_verify_result(tls);
  if (!certificate || (verified != X509_V_OK && verified != X509_V_ERR_CERT_HAS_EXPIRED)) return std::nullopt;
  const std::unique_ptr<GENERAL_NAMES, Freed<GENERAL_NAMES_free>> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate.get(), NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* const uri = name->d.uniformResourceIdentifier;
    return PeerCertificate{
        {reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)), static_cast<std::size_t>(ASN1_STRING_length(uri))},
        seconds_of(X509_get0_notAfter(certificate.get())) * 1000};
  }
  return std::nullopt;
}

void accept_proofs(asio::ssl::context& context, const KeyOf& key_of) {
  // Pre-shared keys are only for TLS 1.3.
  SSL_CTX_set_cipher_list(context.native_handle(), "DEFAULT:!PSK");
  SSL_CTX_set_ex_data(context.native_handle(), key_of_index(), const_cast<KeyOf*>(&key_of));
  SSL_CTX_set_psk_server_callback(context.native_handle(), find_key);
}

std::shared_ptr<asio::ssl::context> proving_server_tls(const KeyOf& key_of) {
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  set_proving(*context);
  accept_proofs(*context, key_of);
  return context;
}

std::string proven_credential(SSL* tls) {
  const auto* const proven = static_cast<const std::string*>(SSL_get_ex_data(tls, credential_index()));
  return proven && SSL_session_reused(tls) == 1 ? *proven : std::string();
}

std::shared_ptr<asio::ssl::context> proving_client_tls(const Proof& proof) {
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_client);
  set_proving(*context);
  // A certificate is not accepted in place of a proof: no authority is trusted here.
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
            "it is a server of an older version (upgrade it first), a server with too many connections, or "
            "another program that listens on this port"};
  return {
      ErrorCode::unavailable, url + " does not prove that it knows this token",
      "the token is wrong, used or revoked (berth token add creates another), or another program listens on this port"};
}

Result<std::shared_ptr<asio::ssl::context>> client_tls(const ClientOptions& options) {
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_client);
  set_versions(*context);
  ErrorValue error;
  if (!options.certificate_file.empty()) {
    context->use_certificate_file(options.certificate_file, asio::ssl::context::pem, error);
    if (error) return file_error("the certificate", options.certificate_file, error);
    context->use_private_key_file(options.certificate_file, asio::ssl::context::pem, error);
    if (error) return file_error("the key", options.certificate_file, error);
  }
  SSL_CTX_set_verify(context->native_handle(), SSL_VERIFY_PEER, nullptr);
  if (!options.fingerprint.empty()) {
    SSL_CTX_set_ex_data(context->native_handle(), expected_index(), new std::string(options.fingerprint));
    SSL_CTX_set_cert_verify_callback(context->native_handle(), verify_fingerprint, nullptr);
    return context;
  }
  if (options.ca_file.empty())
    context->set_default_verify_paths(error);
  else
    context->load_verify_file(options.ca_file, error);
  if (error) return file_error("the CA file", options.ca_file, error);
  return context;
}

bool expect_host(SSL* tls, const std::string& host) {
  const bool address = is_address(host);
  if (!address && SSL_set_tlsext_host_name(tls, host.c_str()) != 1) return false;
  if (address) return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), host.c_str()) == 1;
  SSL_set_hostflags(tls, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  return SSL_set1_host(tls, host.c_str()) == 1;
}

Error handshake_error(SSL* tls, const std::string& host, const ErrorValue& error) {
  const long verified = SSL_get_verify_result(tls);
  const std::string certificate = "the certificate of " + host;
  switch (verified) {
    case X509_V_OK: break;
    case X509_V_ERR_APPLICATION_VERIFICATION: {
      const auto* const presented = static_cast<const std::string*>(SSL_get_ex_data(tls, presented_index()));
      const auto* const expected =
          static_cast<const std::string*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(tls), expected_index()));
      if (!presented || !expected) break;
      return {ErrorCode::invalid_argument,
              certificate + " has the fingerprint " + *presented +
                  ", and no authority that it names has the expected " + *expected,
              "find out why it changed before you trust it; after a change of the server's authority join again with a "
              "new token"};
    }
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return {ErrorCode::invalid_argument, certificate + " does not include the name '" + host + "'",
              "use a name in the certificate, or start the server with --host-name " + host};
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
      return {
          ErrorCode::invalid_argument, certificate + " is not signed by an authority that is trusted here",
          "log in with a token that carries its fingerprint (berth login, or --token-file of an agent), or give the CA "
          "file that signed it"};
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
