// The certificate authority of a fleet. A server creates it in its own folder. It signs the certificate of the
// server and the client certificates of nodes and people. Every token carries its fingerprint, so that a client can
// check the server before it sends anything. A certificate grants no rights by itself: it refers to a credential,
// which the server looks up for every request.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "berth/result.hpp"
#include "http/server.hpp"

namespace berth::http {

// A new key, and the request to sign a certificate for it.
struct CertificateRequest {
  std::string key;      // PEM; never leaves the machine
  std::string request;  // PEM
};
Result<CertificateRequest> make_certificate_request();

// When the first certificate in a file is valid, in seconds since 1970. invalid_argument: there is none.
struct CertificateTimes {
  std::uint64_t from_s = 0, until_s = 0;
  // Whether a third of its lifetime is over. It was issued a day after `from_s`, to allow for differing clocks.
  bool is_renewal_due(std::uint64_t now_s) const;
};
Result<CertificateTimes> certificate_times(const std::string& file);

// The identity in the certificate of a client.
struct CertificateSubject {
  std::string name;  // for people
  std::string role;  // for people
  std::string uri;   // interpreted by the server
};

class Authority {
 public:
  // Opens the authority in `folder`, or creates it: authority.pem, and authority.key with mode 0600. An error: one of
  // the files cannot be read, or they do not belong together.
  static Result<Authority> open(const std::string& folder);
  Authority(Authority&&) noexcept;
  Authority& operator=(Authority&&) noexcept;
  ~Authority();

  const std::string& certificate() const;  // PEM
  const std::string& certificate_file() const;
  const std::string& fingerprint() const;

  // Signs a client certificate (PEM). invalid_argument: not a request, or one that is not signed with its own key.
  Result<std::string> sign(const std::string& request, const CertificateSubject& subject,
                           std::chrono::seconds lifetime) const;
  // Creates a new key and a certificate for these names and addresses, in files in its folder. The chain
  // includes the authority.
  Result<TlsFiles> make_server_certificate(std::span<const std::string> names, std::chrono::seconds lifetime) const;

 private:
  struct State;
  explicit Authority(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace berth::http
