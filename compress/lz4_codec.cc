#include <lz4.h>

#include "compress/codecs.h"

namespace cswap {
namespace {

class Lz4Context final : public CodecContext {
 public:
  explicit Lz4Context(int acceleration) : acceleration_(acceleration) {}

  size_t compress(std::span<const std::byte> in, std::span<std::byte> out) noexcept override {
    // 0 from liblz4 means that the result does not fit in `out`; it is never negative here, since
    // neither size can exceed LZ4_MAX_INPUT_SIZE.
    const int length = LZ4_compress_fast_extState(
        &state_, reinterpret_cast<const char*>(in.data()), reinterpret_cast<char*>(out.data()),
        static_cast<int>(in.size()), static_cast<int>(out.size()), acceleration_);
    return length > 0 ? static_cast<size_t>(length) : 0;
  }

  bool decompress(std::span<const std::byte> in, std::span<std::byte> out) noexcept override {
    const int length = LZ4_decompress_safe(
        reinterpret_cast<const char*>(in.data()), reinterpret_cast<char*>(out.data()),
        static_cast<int>(in.size()), static_cast<int>(out.size()));
    return length >= 0 && static_cast<size_t>(length) == out.size();
  }

 private:
  const int acceleration_;
  LZ4_stream_t state_;  // initialised by each compression
};

class Lz4Codec final : public Codec {
 public:
  explicit Lz4Codec(int acceleration) : acceleration_(acceleration) {}
  [[nodiscard]] Encoding encoding() const override { return Encoding::kLz4; }
  [[nodiscard]] std::string name() const override { return "lz4:" + std::to_string(acceleration_); }
  [[nodiscard]] std::unique_ptr<CodecContext> make_context() const override {
    return std::make_unique<Lz4Context>(acceleration_);
  }

 private:
  const int acceleration_;
};

}  // namespace

std::unique_ptr<Codec> make_lz4_codec(int acceleration) {
  return std::make_unique<Lz4Codec>(acceleration);
}

}  // namespace cswap
