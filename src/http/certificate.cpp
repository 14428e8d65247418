#include "http/certificate.hpp"

#include "http/secret.hpp"
#include "http/tls.hpp"
#include "http/x509.hpp"
#include "world/files.hpp"

namespace berth::http {

std::string fingerprint_of(const X509* certificate) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  if (certificate == nullptr || X509_digest(certificate, EVP_sha256(), digest, &size) != 1) return {};
  return hexadecimal(digest, size);
}

Result<std::string> certificate_fingerprint(const std::string& certificate_file) {
  const Certificate certificate = read_certificate(BERTH_TRY(world::read_text(certificate_file)));
  if (!certificate)
    return Error{ErrorCode::invalid_argument, "there is no certificate in '" + certificate_file + "'",
                 "it must be in PEM form"};
  return fingerprint_of(certificate.get());
}

Result<void> write_self_signed_certificate(std::span<const std::string> names, const std::string& certificate_file,
                                           const std::string& key_file) {
  Contents contents;
  contents.alternative_names = BERTH_TRY(alternative_names(names));
  contents.name = names[0];
  contents.constraints = "critical,CA:TRUE,pathlen:0";
  contents.key_usage = "critical,digitalSignature,keyCertSign";
  contents.extended_key_usage = "serverAuth";
  contents.lifetime = std::chrono::hours(3650 * 24);
  const Key key(EVP_EC_gen("P-256"));
  const Certificate made = key ? make_certificate(contents, key.get(), nullptr, key.get()) : nullptr;
  if (!made) return Error{ErrorCode::internal, "OpenSSL cannot make a certificate"};
  BERTH_TRY(world::write_private_text(key_file, pem_of(key.get())));
  return world::write_text(certificate_file, pem_of(made.get()));
}

}  // namespace berth::http
