#include "http/static_files.hpp"

namespace berth::http {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// Calls `f` with each element of a list separated by commas, until it returns true.
template <class F>
bool any_element(std::string_view list, F f) {
  while (true) {
    const std::size_t comma = list.find(',');
    if (f(trimmed(list.substr(0, comma)))) return true;
    if (comma == list.npos) return false;
    list.remove_prefix(comma + 1);
  }
}

bool accepts_gzip(const Request& request) {
  const auto accepted = request.headers.get("accept-encoding");
  return accepted && any_element(*accepted, [](std::string_view coding) {
           const std::size_t semicolon = coding.find(';');
           if (trimmed(coding.substr(0, semicolon)) != "gzip") return false;
           if (semicolon == coding.npos) return true;
           const std::string_view weight = trimmed(coding.substr(semicolon + 1));
           return !weight.starts_with("q=") || weight.find_first_of("123456789", 2) != weight.npos;
         });
}

bool matches(const Request& request, std::string_view etag) {
  const auto given = request.headers.get("if-none-match");
  return given && any_element(*given, [&](std::string_view tag) {
           if (tag.starts_with("W/")) tag.remove_prefix(2);
           return tag == "*" || tag == etag;
         });
}

}  // namespace

StaticFiles::StaticFiles(std::vector<StaticFile> files) {
  for (StaticFile& file : files) {
    std::string path = file.path;
    files_.insert_or_assign(std::move(path), std::move(file));
  }
}

std::optional<Response> StaticFiles::answer(const Request& request) const {
  const auto found =
      files_.find(request.path == "/" ? std::string_view("/index.html") : std::string_view(request.path));
  if (found == files_.end()) return std::nullopt;
  const StaticFile& file = found->second;
  if (request.method != "GET" && request.method != "HEAD") {
    Response refused = error_response(405, "invalid_argument", "this path can only be read", "use GET");
    refused.headers.set("allow", "GET, HEAD");
    return refused;
  }

  const bool gzip = !file.gzipped.empty() && accepts_gzip(request);
  Response response;
  // "no-cache" lets the browser keep the file, and revalidate it with its entity tag.
  response.headers.set("cache-control", file.is_hashed ? "public, max-age=31536000, immutable" : "no-cache");
  if (!file.gzipped.empty()) response.headers.set("vary", "accept-encoding");
  if (!file.etag.empty()) {
    // The two forms are different bytes, so their tags must differ.
    const std::string etag = '"' + file.etag + (gzip ? "-gzip\"" : "\"");
    response.headers.set("etag", etag);
    if (matches(request, etag)) {
      response.status = 304;
      return response;
    }
  }
  response.headers.set("content-type", file.content_type);
  if (gzip) response.headers.set("content-encoding", "gzip");
  response.body = gzip ? file.gzipped : file.bytes;
  return response;
}

}  // namespace berth::http
