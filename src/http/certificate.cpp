#include "http/certificate.hpp"

#include <arpa/inet.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <memory>

#include "http/tls.hpp"
#include "world/files.hpp"

namespace berth::http {
namespace {

template <auto free>
struct Freed {
  template <class T>
  void operator()(T* object) const {
    free(object);
  }
};
using Bio = std::unique_ptr<BIO, Freed<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;

std::string contents(BIO* bio) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio, &bytes);
  return {bytes, static_cast<std::size_t>(size)};
}

bool is_address(const std::string& name) {
  unsigned char bytes[16];
  return inet_pton(AF_INET, name.c_str(), bytes) == 1 || inet_pton(AF_INET6, name.c_str(), bytes) == 1;
}

bool add_extension(X509* certificate, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, Freed<X509_EXTENSION_free>> extension(
      X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

}  // namespace

std::string fingerprint_of(const X509* certificate) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  if (certificate == nullptr || X509_digest(certificate, EVP_sha256(), digest, &size) != 1) return {};
  std::string text;
  for (unsigned i = 0; i < size; ++i) {
    static constexpr char digits[] = "0123456789abcdef";
    text += digits[digest[i] >> 4];
    text += digits[digest[i] & 15];
  }
  return text;
}

Result<std::string> certificate_fingerprint(const std::string& certificate_file) {
  const std::string pem = BERTH_TRY(world::read_text(certificate_file));
  const Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  const Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  if (!certificate)
    return Error{ErrorCode::invalid_argument, "there is no certificate in '" + certificate_file + "'",
                 "it must be in PEM form"};
  return fingerprint_of(certificate.get());
}

Result<void> write_self_signed_certificate(std::span<const std::string> names, const std::string& certificate_file,
                                           const std::string& key_file) {
  std::string alternatives;
  for (const std::string& name : names) {
    // The separators of OpenSSL's own notation.
    if (name.empty() || name.find_first_of(",; \t\n=") != name.npos)
      return Error{ErrorCode::invalid_argument, "'" + name + "' is no name of a host"};
    alternatives += (alternatives.empty() ? "" : ",") + std::string(is_address(name) ? "IP:" : "DNS:") + name;
  }
  if (names.empty()) return Error{ErrorCode::invalid_argument, "a certificate needs a name"};

  const Error failed{ErrorCode::internal, "OpenSSL cannot make a certificate"};
  const Key key(EVP_EC_gen("P-256"));
  const Certificate certificate(X509_new());
  unsigned char serial[16];
  if (!key || !certificate || RAND_bytes(serial, sizeof serial) != 1) return failed;
  serial[0] &= 0x7f;  // positive
  X509_set_version(certificate.get(), X509_VERSION_3);
  const std::unique_ptr<BIGNUM, Freed<BN_free>> number(BN_bin2bn(serial, sizeof serial, nullptr));
  if (!number || !BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate.get()))) return failed;
  constexpr long day_s = 24 * 3600;
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -day_s);  // clocks differ
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3650 * day_s);
  X509_NAME* const subject = X509_get_subject_name(certificate.get());
  const std::string common = names[0].substr(0, 64);
  const bool made =
      X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(common.data()),
                                 static_cast<int>(common.size()), -1, 0) == 1 &&
      X509_set_issuer_name(certificate.get(), subject) == 1 && X509_set_pubkey(certificate.get(), key.get()) == 1 &&
      add_extension(certificate.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
      add_extension(certificate.get(), NID_key_usage, "critical,digitalSignature,keyCertSign") &&
      add_extension(certificate.get(), NID_ext_key_usage, "serverAuth") &&
      add_extension(certificate.get(), NID_subject_key_identifier, "hash") &&
      add_extension(certificate.get(), NID_subject_alt_name, alternatives) &&
      X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0;
  const Bio key_pem(BIO_new(BIO_s_mem()));
  const Bio certificate_pem(BIO_new(BIO_s_mem()));
  if (!made || PEM_write_bio_PrivateKey(key_pem.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1 ||
      PEM_write_bio_X509(certificate_pem.get(), certificate.get()) != 1)
    return failed;
  BERTH_TRY(world::write_private_text(key_file, contents(key_pem.get())));
  return world::write_text(certificate_file, contents(certificate_pem.get()));
}

}  // namespace berth::http
