// Owners of OpenSSL's objects and the pieces of certificates that this folder makes. Only for sources of this folder.
#pragma once

#include <openssl/pem.h>
#include <openssl/x509.h>

#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "berth/result.hpp"

namespace berth::http {

template <auto free>
struct Freed {
  template <class T>
  void operator()(T* object) const {
    free(object);
  }
};
using Bio = std::unique_ptr<BIO, Freed<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using CertificateRequestObject = std::unique_ptr<X509_REQ, Freed<X509_REQ_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;

// Returns null if the text is not a certificate.
Certificate read_certificate(const std::string& pem);
Key read_key(const std::string& pem);
CertificateRequestObject read_request(const std::string& pem);
std::string pem_of(const X509* certificate);
std::string pem_of(const EVP_PKEY* key);

// Seconds since 1970.
std::uint64_t seconds_of(const ASN1_TIME* time);

// The contents of a certificate, in OpenSSL's own notation ("critical,CA:TRUE,pathlen:0"); empty fields are omitted.
struct Contents {
  std::string name;          // CN
  std::string organization;  // OU
  std::string constraints, key_usage, extended_key_usage, alternative_names;
  std::chrono::seconds lifetime{};
};
// Makes a certificate signed by `issuer` with its key, or self-signed if `issuer` is null. Returns null if OpenSSL
// failed.
Certificate make_certificate(const Contents& contents, EVP_PKEY* subject_key, const X509* issuer, EVP_PKEY* issuer_key);

// "DNS:head,IP:10.0.0.1". invalid_argument: not a host name.
Result<std::string> alternative_names(std::span<const std::string> names);

// An IPv4 or IPv6 address, and not a name.
bool is_address(const std::string& host);

}  // namespace berth::http
