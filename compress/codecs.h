// Codecs by name, as the `compressor` parameter gives them.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "compress/codec.h"

namespace cswap {

// What parse_codec() accepts, for messages and for --dump-plugin.
inline constexpr std::string_view kAcceptedCodecs =
    "lz4, lz4:ACCELERATION (1 to 65537), zstd, zstd:LEVEL (-131072 to 22 but 0), none";

// The codec that `text` names; null when it is none of kAcceptedCodecs. Throws std::bad_alloc.
[[nodiscard]] std::unique_ptr<Codec> parse_codec(std::string_view text);

[[nodiscard]] std::unique_ptr<Codec> make_lz4_codec(int acceleration);
[[nodiscard]] std::unique_ptr<Codec> make_zstd_codec(int level);
// Never compresses, so that every unit is stored raw: a RAM disk.
[[nodiscard]] std::unique_ptr<Codec> make_none_codec();

}  // namespace cswap
