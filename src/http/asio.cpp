// The definitions of header-only Asio, compiled once.
#include "http/asio.hpp"

#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
