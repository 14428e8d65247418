// Boost.JSON, header-only: its definitions, once.
#include <boost/json/src.hpp>
