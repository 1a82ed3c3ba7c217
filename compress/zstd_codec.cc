#include <zstd.h>

#include <array>
#include <new>

#include "compress/codecs.h"

namespace cswap {
namespace {

// The largest unit that a context will see: 64 KiB. libzstd sizes its workspace by the largest
// input so far, so compressing one unit of this size at the start makes later calls allocate
// nothing.
constexpr size_t kLargestUnitBytes = 64 * 1024;

class ZstdContext final : public CodecContext {
 public:
  explicit ZstdContext(int level)
      : compressor_(ZSTD_createCCtx()), decompressor_(ZSTD_createDCtx()) {
    if (!compressor_ || !decompressor_) throw std::bad_alloc();
    if (ZSTD_isError(ZSTD_CCtx_setParameter(compressor_.get(), ZSTD_c_compressionLevel, level))) {
      throw std::bad_alloc();
    }
    const std::unique_ptr<std::byte[]> unit(new std::byte[kLargestUnitBytes]());
    std::array<std::byte, 1024> out;
    if (compress({unit.get(), kLargestUnitBytes}, out) == 0) throw std::bad_alloc();
  }

  size_t compress(std::span<const std::byte> in, std::span<std::byte> out) noexcept override {
    // An error here is dstSize_tooSmall: the unit does not shrink enough.
    const size_t length =
        ZSTD_compress2(compressor_.get(), out.data(), out.size(), in.data(), in.size());
    return ZSTD_isError(length) ? 0 : length;
  }

  bool decompress(std::span<const std::byte> in, std::span<std::byte> out) noexcept override {
    const size_t length =
        ZSTD_decompressDCtx(decompressor_.get(), out.data(), out.size(), in.data(), in.size());
    return !ZSTD_isError(length) && length == out.size();
  }

 private:
  struct Free {
    void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };
  const std::unique_ptr<ZSTD_CCtx, Free> compressor_;
  const std::unique_ptr<ZSTD_DCtx, Free> decompressor_;
};

class ZstdCodec final : public Codec {
 public:
  explicit ZstdCodec(int level) : level_(level) {}
  [[nodiscard]] Encoding encoding() const override { return Encoding::kZstd; }
  [[nodiscard]] std::string name() const override { return "zstd:" + std::to_string(level_); }
  [[nodiscard]] std::unique_ptr<CodecContext> make_context() const override {
    return std::make_unique<ZstdContext>(level_);
  }

 private:
  const int level_;
};

}  // namespace

std::unique_ptr<Codec> make_zstd_codec(int level) { return std::make_unique<ZstdCodec>(level); }

}  // namespace cswap
