#include "plugin/utf8.h"

#include <cstddef>

namespace cswap {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool continues(std::string_view bytes, size_t at, unsigned char low = 0x80,
               unsigned char high = 0xBF) {
  if (at >= bytes.size()) return false;
  const auto byte = static_cast<unsigned char>(bytes[at]);
  return byte >= low && byte <= high;
}

// Bytes of the character at the start, 0 if there is none. The ranges are those of table 3-7 of the
// Unicode standard: only the second byte's depends on the first.
size_t character_bytes(std::string_view bytes) {
  const auto first = static_cast<unsigned char>(bytes[0]);
  if (first == 0) return 0;
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(bytes, 1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const unsigned char low = first == 0xE0 ? 0xA0 : 0x80;
    const unsigned char high = first == 0xED ? 0x9F : 0xBF;
    return continues(bytes, 1, low, high) && continues(bytes, 2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const unsigned char low = first == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = first == 0xF4 ? 0x8F : 0xBF;
    return continues(bytes, 1, low, high) && continues(bytes, 2) && continues(bytes, 3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string to_valid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t n = character_bytes(bytes);
    out += n > 0 ? bytes.substr(0, n) : kReplacement;
    bytes.remove_prefix(n > 0 ? n : 1);
  }
  return out;
}

}  // namespace cswap
