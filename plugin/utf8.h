// Makes any bytes fit to stand in a text that must be UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace cswap {

// The bytes as valid UTF-8 (no overlong form, no surrogate, nothing above U+10FFFF) without NUL,
// which ends the input of Prometheus's parser; each byte that does not fit becomes U+FFFD. Valid
// text comes back unchanged.
[[nodiscard]] std::string to_valid_utf8(std::string_view bytes);

}  // namespace cswap
