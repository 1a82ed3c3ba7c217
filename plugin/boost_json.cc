// Boost.JSON, compiled into this target: Debian's header package brings no library of it.
#include <boost/json/src.hpp>
