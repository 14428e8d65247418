// What this folder uses of Beast: the parsers of requests and answers.
#pragma once

#include "http/asio.hpp"
// Must follow the settings of Asio.
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <string_view>

namespace berth::http {

inline std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace berth::http
