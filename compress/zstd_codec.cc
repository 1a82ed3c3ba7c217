#include <zstd.h>

#include <array>
#include <new>

#include "compress/codecs.h"

namespace cswap {
namespace {

// The length of the units that a context will see. libzstd sizes its workspace by its input, and
// compressing one unit at the start makes later calls allocate nothing. It must not be longer than
// the units to come: after 128 inputs that need less than a third of the workspace, libzstd
// allocates a smaller one, and when that is refused the context stays broken.
constexpr size_t kUnitBytes = 4096;

class ZstdContext final : public CodecContext {
 public:
  explicit ZstdContext(int level)
      : compressor_(ZSTD_createCCtx()), decompressor_(ZSTD_createDCtx()) {
    if (!compressor_ || !decompressor_) throw std::bad_alloc();
    if (ZSTD_isError(ZSTD_CCtx_setParameter(compressor_.get(), ZSTD_c_compressionLevel, level))) {
      throw std::bad_alloc();
    }
    const std::array<std::byte, kUnitBytes> unit{};
    std::array<std::byte, ZSTD_COMPRESSBOUND(kUnitBytes)> out;
    if (compress(unit, out) == 0) throw std::bad_alloc();
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
