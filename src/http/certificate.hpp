// Certificates in files, for operators of a server: the fingerprint by which an agent recognises it, and a
// self-signed certificate for a server without one.
#pragma once

#include <span>
#include <string>

#include "berth/result.hpp"

namespace berth::http {

// SHA-256 of the first certificate in a PEM file as 64 hexadecimal digits, for ClientOptions::fingerprint.
// invalid_argument: not such a file.
Result<std::string> certificate_fingerprint(const std::string& certificate_file);

// Writes a key (mode 0600) and a certificate for these names and addresses, signed by itself and valid for ten years.
// Replaces the files.
Result<void> write_self_signed_certificate(std::span<const std::string> names, const std::string& certificate_file,
                                           const std::string& key_file);

}  // namespace berth::http
