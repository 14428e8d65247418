// Files of the page, from memory: answers GET and HEAD from a table that does not change. Sends the gzipped form to
// clients that accept it, an entity tag so that an unchanged file is not sent again, and allows browsers to keep
// files whose name contains a hash of their content.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/message.hpp"

namespace berth::http {

// The bytes must outlive the table: they are usually part of the program.
struct StaticFile {
  std::string path;          // "/assets/index-4f2a.js"
  std::string content_type;  // "text/javascript; charset=utf-8"
  std::string_view bytes = {};
  std::string_view gzipped = {};  // empty: there is none
  std::string etag = {};          // without quotes; empty: none
  bool is_hashed = false;         // the name changes with the content: kept for a year
};

class StaticFiles {
 public:
  explicit StaticFiles(std::vector<StaticFile> files);

  // The answer for a path of the table; "/" means "/index.html". Absent: not in the table. 405 for methods other than
  // GET and HEAD.
  std::optional<Response> answer(const Request& request) const;

 private:
  std::map<std::string, StaticFile, std::less<>> files_;
};

}  // namespace berth::http
