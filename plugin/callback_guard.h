// No C++ exception may cross into nbdkit: every callback body runs in a guard.
#pragma once

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include <cerrno>
#include <exception>
#include <new>
#include <system_error>

namespace cswap {

// Runs `body` and returns what it returns. An exception is logged with the callback's name, sets
// the error that the client gets, and makes the guard return `failure`.
template <typename Result, typename Body>
Result guard_callback(const char* name, Result failure, Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    nbdkit_error("%s: out of memory", name);
    nbdkit_set_error(ENOMEM);
  } catch (const std::system_error& error) {
    nbdkit_error("%s: %s", name, error.what());
    nbdkit_set_error(error.code().value());
  } catch (const std::exception& error) {
    nbdkit_error("%s: %s", name, error.what());
    nbdkit_set_error(EIO);
  } catch (...) {
    nbdkit_error("%s: unknown exception", name);
    nbdkit_set_error(EIO);
  }
  return failure;
}

}  // namespace cswap
