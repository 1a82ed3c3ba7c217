#include "compress/codecs.h"

#include <zstd.h>

#include <charconv>
#include <optional>

namespace cswap {
namespace {

class NoneContext final : public CodecContext {
 public:
  size_t compress(std::span<const std::byte>, std::span<std::byte>) noexcept override { return 0; }
  bool decompress(std::span<const std::byte>, std::span<std::byte>) noexcept override {
    return false;
  }
};

class NoneCodec final : public Codec {
 public:
  [[nodiscard]] Encoding encoding() const override { return Encoding::kRaw; }
  [[nodiscard]] std::string name() const override { return "none"; }
  [[nodiscard]] std::unique_ptr<CodecContext> make_context() const override {
    return std::make_unique<NoneContext>();
  }
};

std::optional<int> parse_level(std::string_view text, int min, int max) {
  int level = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), level);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (level < min || level > max) return std::nullopt;
  return level;
}

}  // namespace

std::unique_ptr<Codec> make_none_codec() { return std::make_unique<NoneCodec>(); }

std::unique_ptr<Codec> parse_codec(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  if (colon == std::string_view::npos) {
    if (name == "lz4") return make_lz4_codec(1);
    if (name == "zstd") return make_zstd_codec(ZSTD_CLEVEL_DEFAULT);
    if (name == "none") return make_none_codec();
    return nullptr;
  }
  const std::string_view level_text = text.substr(colon + 1);
  if (name == "lz4") {
    // LZ4_ACCELERATION_MAX of liblz4 1.9.4, which clamps silently what is above.
    const auto acceleration = parse_level(level_text, 1, 65537);
    return acceleration ? make_lz4_codec(*acceleration) : nullptr;
  }
  if (name == "zstd") {
    const auto level = parse_level(level_text, ZSTD_minCLevel(), ZSTD_maxCLevel());
    // libzstd takes level 0 for its default; two names for one thing confuse a comparison.
    return level && *level != 0 ? make_zstd_codec(*level) : nullptr;
  }
  return nullptr;
}

}  // namespace cswap
