// What this folder uses of Asio. Its definitions are compiled once, in asio.cpp. Never included by a header that other
// folders see.
#pragma once

// All sources must agree on these, or functions of the same name would differ between them.
#ifdef BOOST_ASIO_DETAIL_CONFIG_HPP
#error "a header of Asio or Beast was included before http/asio.hpp"
#endif
#define BOOST_ASIO_SEPARATE_COMPILATION
#define BOOST_ASIO_NO_DEPRECATED

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>

namespace berth::http {
namespace asio = boost::asio;
using ErrorValue = boost::system::error_code;
// TCP and Unix sockets alike.
using Socket = asio::generic::stream_protocol::socket;
}  // namespace berth::http
