#include "http/authority.hpp"

#include <unistd.h>

#include "http/tls.hpp"
#include "http/x509.hpp"
#include "world/files.hpp"
#include "world/runtime_folder.hpp"

namespace berth::http {
namespace {

constexpr std::chrono::seconds day{24 * 3600};
constexpr std::chrono::seconds authority_lifetime = 20 * 365 * day;

std::string server_file(const std::string& folder) { return folder + "/server.pem"; }

Error failed() { return {ErrorCode::internal, "OpenSSL cannot make a certificate"}; }

}  // namespace

Result<CertificateRequest> make_certificate_request() {
  const Key key(EVP_EC_gen("P-256"));
  const CertificateRequestObject request(X509_REQ_new());
  const Bio bio(BIO_new(BIO_s_mem()));
  if (!key || !request || X509_REQ_set_version(request.get(), X509_REQ_VERSION_1) != 1 ||
      X509_REQ_set_pubkey(request.get(), key.get()) != 1 ||
      X509_REQ_sign(request.get(), key.get(), EVP_sha256()) <= 0 ||
      PEM_write_bio_X509_REQ(bio.get(), request.get()) != 1)
    return failed();
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &bytes);
  return CertificateRequest{pem_of(key.get()), {bytes, static_cast<std::size_t>(size)}};
}

bool CertificateTimes::is_renewal_due(std::uint64_t now_s) const {
  const std::uint64_t made_s = from_s + static_cast<std::uint64_t>(day.count());
  return now_s >= made_s + (until_s - made_s) / 3;
}

Result<CertificateTimes> certificate_times(const std::string& file) {
  const Certificate certificate = read_certificate(BERTH_TRY(world::read_text(file)));
  if (!certificate) return Error{ErrorCode::invalid_argument, "there is no certificate in '" + file + "'"};
  return CertificateTimes{seconds_of(X509_get0_notBefore(certificate.get())),
                          seconds_of(X509_get0_notAfter(certificate.get()))};
}

struct Authority::State {
  std::string folder, file, pem, fingerprint;
  Certificate certificate;
  Key key;
};

Authority::Authority(std::unique_ptr<State> state) : state_(std::move(state)) {}
Authority::Authority(Authority&&) noexcept = default;
Authority& Authority::operator=(Authority&&) noexcept = default;
Authority::~Authority() = default;

const std::string& Authority::certificate() const { return state_->pem; }
const std::string& Authority::certificate_file() const { return state_->file; }
const std::string& Authority::fingerprint() const { return state_->fingerprint; }

Result<Authority> Authority::open(const std::string& folder) {
  auto state = std::make_unique<State>();
  state->folder = BERTH_TRY(world::private_folder(folder));
  state->file = state->folder + "/authority.pem";
  const std::string key_file = state->folder + "/authority.key";
  const auto is_there = [](const std::string& file) { return ::access(file.c_str(), F_OK) == 0; };
  // The certificate of the authority is written after its key, and that of the server last: if both are missing, no
  // client has seen this authority. If only one is missing, replacing the key would disconnect every node permanently.
  if (!is_there(state->file) && !is_there(server_file(state->folder))) {
    const Key key(EVP_EC_gen("P-256"));
    if (!key) return failed();
    Contents contents;
    contents.name = "Berth fleet authority";
    contents.constraints = "critical,CA:TRUE,pathlen:0";
    contents.key_usage = "critical,keyCertSign,cRLSign";
    contents.lifetime = authority_lifetime;
    const Certificate made = make_certificate(contents, key.get(), nullptr, key.get());
    if (!made) return failed();
    BERTH_TRY(world::write_private_text(key_file, pem_of(key.get())));
    BERTH_TRY(world::write_text(state->file, pem_of(made.get())));
  }
  state->pem = world::read_text(state->file).value_or("");
  state->certificate = read_certificate(state->pem);
  state->key = read_key(world::read_text(key_file).value_or(""));
  if (!state->certificate || !state->key || X509_check_private_key(state->certificate.get(), state->key.get()) != 1)
    return Error{ErrorCode::invalid_argument,
                 "the certificate authority in " + state->folder + " is damaged: " + state->file + " and " + key_file +
                     " are not both present, or do not belong together",
                 "restore both from a backup; without one, remove the folder and let every node join again"};
  state->fingerprint = fingerprint_of(state->certificate.get());
  return Authority(std::move(state));
}

Result<std::string> Authority::sign(const std::string& request, const CertificateSubject& subject,
                                    std::chrono::seconds lifetime) const {
  const CertificateRequestObject read = read_request(request);
  EVP_PKEY* const key = read ? X509_REQ_get0_pubkey(read.get()) : nullptr;
  // Only the key of the request is used: the connection identifies the client.
  if (!key || X509_REQ_verify(read.get(), key) != 1)
    return Error{ErrorCode::invalid_argument, "the request for a certificate is not valid"};
  if (EVP_PKEY_is_a(key, "EC") != 1 || EVP_PKEY_get_bits(key) != 256)
    return Error{ErrorCode::invalid_argument, "the request for a certificate is not for a key on the curve P-256"};
  Contents contents;
  contents.name = subject.name;
  contents.organization = subject.role;
  contents.constraints = "critical,CA:FALSE";
  contents.key_usage = "critical,digitalSignature";
  contents.extended_key_usage = "clientAuth";
  contents.alternative_names = "URI:" + subject.uri;
  contents.lifetime = lifetime;
  const Certificate made = make_certificate(contents, key, state_->certificate.get(), state_->key.get());
  if (!made) return failed();
  return pem_of(made.get());
}

Result<TlsFiles> Authority::make_server_certificate(std::span<const std::string> names,
                                                    std::chrono::seconds lifetime) const {
  const Key key(EVP_EC_gen("P-256"));
  Contents contents;
  contents.name = names.empty() ? "" : names[0];
  contents.organization = "server";
  contents.constraints = "critical,CA:FALSE";
  contents.key_usage = "critical,digitalSignature";
  contents.extended_key_usage = "serverAuth";
  contents.alternative_names = BERTH_TRY(alternative_names(names));
  contents.lifetime = lifetime;
  const Certificate made =
      key ? make_certificate(contents, key.get(), state_->certificate.get(), state_->key.get()) : nullptr;
  if (!made) return failed();
  TlsFiles files{server_file(state_->folder), state_->folder + "/server.key", state_->file};
  BERTH_TRY(world::write_private_text(files.key_file, pem_of(key.get())));
  BERTH_TRY(world::write_text(files.certificate_file, pem_of(made.get()) + state_->pem));
  return files;
}

}  // namespace berth::http
