#include "http/tls.hpp"

#include <arpa/inet.h>
#include <openssl/x509v3.h>

namespace berth::http {
namespace {

void set_versions(asio::ssl::context& context) {
  SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.native_handle(), SSL_OP_NO_RENEGOTIATION);
}

Error file_error(const std::string& what, const std::string& file, const ErrorValue& error) {
  return {ErrorCode::invalid_argument, "cannot use " + what + " '" + file + "': " + error.message()};
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
