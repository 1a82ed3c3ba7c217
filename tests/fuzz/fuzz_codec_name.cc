// The parameter `compressor`: any value is refused, or names a codec whose own name names it again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "compress/codecs.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto codec = cswap::parse_codec(text);
  if (codec == nullptr) return 0;
  // At least what is before the colon is as it was given.
  if (!codec->name().starts_with(text.substr(0, text.find(':')))) std::abort();
  const auto again = cswap::parse_codec(codec->name());
  if (again == nullptr || again->name() != codec->name()) std::abort();
  if (again->encoding() != codec->encoding()) std::abort();
  return 0;
}
