// The definitions of header-only Boost.JSON, compiled once.
#include <boost/json/src.hpp>
