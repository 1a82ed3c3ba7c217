// Assertions. CSWAP_CHECK stays in every build: it guards what would serve a wrong page.
// CSWAP_DCHECK is for what costs too much on a request path.
#pragma once

namespace cswap {

// Prints where and what, and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* what);

}  // namespace cswap

#define CSWAP_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::cswap::check_failed(__FILE__, __LINE__, #condition))

#ifdef NDEBUG
#define CSWAP_DCHECK(condition) static_cast<void>(sizeof(condition))
#else
#define CSWAP_DCHECK(condition) CSWAP_CHECK(condition)
#endif
