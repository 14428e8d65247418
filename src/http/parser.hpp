// Beast's parser, which returns the pieces of a body in place, and collects headers in Berth's own form. Trailers
// after the last chunk do not change headers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "http/beast.hpp"
#include "http/message.hpp"

namespace berth::http {

template <bool is_request>
class MessageParser final : public boost::beast::http::basic_parser<is_request> {
 public:
  explicit MessageParser(Head& head) : head_(head) {}

  // The piece of the body in the last bytes that were put; empty: none.
  std::string_view piece() const { return piece_; }
  void clear_piece() { piece_ = {}; }
  // Whether the last chunk has been read.
  bool is_in_trailer() const { return is_in_trailer_; }

 private:
  using Text = boost::beast::string_view;
  void on_request_impl(boost::beast::http::verb, Text method, Text target, int version, ErrorValue&) override {
    head_.method = view(method);
    head_.target = view(target);
    head_.version = version;
  }
  void on_response_impl(int status, Text, int version, ErrorValue&) override {
    head_.status = status;
    head_.version = version;
  }
  void on_field_impl(boost::beast::http::field, Text name, Text value, ErrorValue&) override {
    if (!this->is_header_done()) head_.headers.add(view(name), std::string(view(value)));
  }
  void on_header_impl(ErrorValue&) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>&, ErrorValue&) override {}
  std::size_t on_body_impl(Text bytes, ErrorValue&) override {
    piece_ = view(bytes);
    return bytes.size();
  }
  void on_chunk_header_impl(std::uint64_t size, Text, ErrorValue&) override { is_in_trailer_ = size == 0; }
  std::size_t on_chunk_body_impl(std::uint64_t, Text bytes, ErrorValue&) override {
    piece_ = view(bytes);
    return bytes.size();
  }
  void on_finish_impl(ErrorValue&) override {}

  Head& head_;
  std::string_view piece_;
  bool is_in_trailer_ = false;
};

}  // namespace berth::http
