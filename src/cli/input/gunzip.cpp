#include "cli/input/gunzip.hpp"

#include <algorithm>

#ifdef BERTH_HAS_ZLIB
#include <zlib.h>
#endif

namespace berth::cli {
namespace {

bool is_gzip(const std::string& bytes) { return bytes.starts_with("\x1f\x8b"); }

#ifdef BERTH_HAS_ZLIB
// Larger than any trace. A few kilobytes of input could expand to terabytes.
constexpr std::size_t text_bytes_max = std::size_t{1} << 30;

Error damaged(const std::string& name, const std::string& how) {
  return {ErrorCode::invalid_argument, name + " " + how, "check it with gzip -t, or fetch it again"};
}
#endif

}  // namespace

Result<std::string> gunzip(std::string bytes, const std::string& name) {
  if (!is_gzip(bytes)) return bytes;
#ifdef BERTH_HAS_ZLIB
  z_stream stream{};
  constexpr int gzip_only = 16 + MAX_WBITS;
  if (inflateInit2(&stream, gzip_only) != Z_OK)
    return Error{ErrorCode::out_of_memory, "not enough memory to decompress " + name, "run gunzip on it first"};
  struct End {
    z_stream& stream;
    ~End() { inflateEnd(&stream); }
  } const end{stream};
  stream.next_in = reinterpret_cast<Bytef*>(bytes.data());
  std::size_t left = bytes.size();
  std::string text;
  char block[1 << 16];
  for (;;) {
    // zlib counts in 32 bits.
    stream.avail_in = static_cast<uInt>(std::min<std::size_t>(left, 1 << 30));
    const uInt given = stream.avail_in;
    stream.next_out = reinterpret_cast<Bytef*>(block);
    stream.avail_out = sizeof block;
    const int result = inflate(&stream, Z_NO_FLUSH);
    left -= given - stream.avail_in;
    text.append(block, sizeof block - stream.avail_out);
    if (text.size() > text_bytes_max) return damaged(name, "expands to more than 1 GiB");
    if (result == Z_STREAM_END) {
      if (left == 0) return text;
      inflateReset(&stream);  // concatenated files are one text
    } else if (result == Z_BUF_ERROR || (result == Z_OK && left == 0 && stream.avail_out > 0)) {
      return damaged(name, "is a truncated gzip file");
    } else if (result != Z_OK) {
      return damaged(name, "is a damaged gzip file");
    }
  }
#else
  return Error{ErrorCode::not_supported, name + " is gzipped, and this berth was built without zlib",
               "run gunzip on it first"};
#endif
}

}  // namespace berth::cli
