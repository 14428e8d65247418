#include "http/x509.hpp"

#include <arpa/inet.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <ctime>

namespace berth::http {
namespace {

Bio memory_of(const std::string& text) { return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

std::string contents_of(BIO* bio) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio, &bytes);
  return {bytes, static_cast<std::size_t>(size)};
}

bool add_extension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  if (value.empty()) return true;
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, Freed<X509_EXTENSION_free>> extension(
      X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool add_name(X509_NAME* name, const char* kind, const std::string& text) {
  if (text.empty()) return true;
  const std::string shortened = text.substr(0, 64);  // the longest that X.509 allows
  return X509_NAME_add_entry_by_txt(name, kind, MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(shortened.data()),
                                    static_cast<int>(shortened.size()), -1, 0) == 1;
}

}  // namespace

Certificate read_certificate(const std::string& pem) {
  return Certificate(PEM_read_bio_X509(memory_of(pem).get(), nullptr, nullptr, nullptr));
}

Key read_key(const std::string& pem) {
  // Without a password: OpenSSL would ask for one on the terminal.
  const auto no_password = [](char*, int, int, void*) { return -1; };
  return Key(PEM_read_bio_PrivateKey(memory_of(pem).get(), nullptr, no_password, nullptr));
}

CertificateRequestObject read_request(const std::string& pem) {
  return CertificateRequestObject(PEM_read_bio_X509_REQ(memory_of(pem).get(), nullptr, nullptr, nullptr));
}

std::string pem_of(const X509* certificate) {
  const Bio bio(BIO_new(BIO_s_mem()));
  return PEM_write_bio_X509(bio.get(), certificate) == 1 ? contents_of(bio.get()) : std::string();
}

std::string pem_of(const EVP_PKEY* key) {
  const Bio bio(BIO_new(BIO_s_mem()));
  return PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1 ? contents_of(bio.get())
                                                                                              : std::string();
}

std::uint64_t seconds_of(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return 0;
  const std::time_t seconds = timegm(&parts);
  return seconds < 0 ? 0 : static_cast<std::uint64_t>(seconds);
}

Certificate make_certificate(const Contents& contents, EVP_PKEY* subject_key, const X509* issuer,
                             EVP_PKEY* issuer_key) {
  Certificate certificate(X509_new());
  unsigned char serial[16];
  if (!certificate || RAND_bytes(serial, sizeof serial) != 1) return nullptr;
  serial[0] &= 0x7f;  // positive
  const std::unique_ptr<BIGNUM, Freed<BN_free>> number(BN_bin2bn(serial, sizeof serial, nullptr));
  constexpr long day_s = 24L * 3600;
  X509* const signer = issuer ? const_cast<X509*>(issuer) : certificate.get();
  X509_NAME* const subject = X509_get_subject_name(certificate.get());
  const bool made =
      number && BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate.get())) != nullptr &&
      X509_set_version(certificate.get(), X509_VERSION_3) == 1 &&
      X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -day_s) != nullptr &&  // clocks differ
      X509_gmtime_adj(X509_getm_notAfter(certificate.get()), static_cast<long>(contents.lifetime.count())) != nullptr &&
      add_name(subject, "OU", contents.organization) && add_name(subject, "CN", contents.name) &&
      X509_set_pubkey(certificate.get(), subject_key) == 1 &&
      X509_set_issuer_name(certificate.get(), X509_get_subject_name(signer)) == 1 &&
      add_extension(certificate.get(), signer, NID_basic_constraints, contents.constraints) &&
      add_extension(certificate.get(), signer, NID_key_usage, contents.key_usage) &&
      add_extension(certificate.get(), signer, NID_ext_key_usage, contents.extended_key_usage) &&
      add_extension(certificate.get(), signer, NID_subject_key_identifier, "hash") &&
      add_extension(certificate.get(), signer, NID_authority_key_identifier, issuer ? "keyid:always" : "") &&
      add_extension(certificate.get(), signer, NID_subject_alt_name, contents.alternative_names) &&
      X509_sign(certificate.get(), issuer_key, EVP_sha256()) > 0;
  return made ? std::move(certificate) : nullptr;
}

bool is_address(const std::string& host) {
  unsigned char bytes[16];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 || inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

Result<std::string> alternative_names(std::span<const std::string> names) {
  std::string all;
  for (const std::string& name : names) {
    // The separators of OpenSSL's own notation.
    if (name.empty() || name.find_first_of(",; \t\n=") != name.npos)
      return Error{ErrorCode::invalid_argument, "'" + name + "' is not a host name"};
    all += (all.empty() ? "" : ",") + std::string(is_address(name) ? "IP:" : "DNS:") + name;
  }
  if (all.empty()) return Error{ErrorCode::invalid_argument, "a certificate needs a name"};
  return all;
}

}  // namespace berth::http
