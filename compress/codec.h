// A codec compresses one unit of pages into a caller's buffer. It knows no pool.
//
// A Codec is immutable and may be shared. What a compressor needs besides (hash tables, contexts)
// is in a CodecContext, which one thread at a time may use. After make_context() nothing here
// allocates: a request must not need memory that can be refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cswap {

// How the bytes of an object are encoded; stored with each object, so values never change.
enum class Encoding : uint8_t { kRaw = 0, kLz4 = 1, kZstd = 2 };

class CodecContext {
 public:
  CodecContext() = default;
  CodecContext(const CodecContext&) = delete;
  CodecContext& operator=(const CodecContext&) = delete;
  virtual ~CodecContext() = default;

  // Compresses `in` into `out`. Returns the exact length in bytes, or 0 when it does not fit:
  // then the unit is to be stored raw, which is no error.
  [[nodiscard]] virtual size_t compress(std::span<const std::byte> in,
                                        std::span<std::byte> out) noexcept = 0;

  // Decompresses all of `in` into exactly all of `out`. False when `in` is not such a stream;
  // `out` is then undefined. Safe on any bytes: reads only `in`, writes only `out`.
  [[nodiscard]] virtual bool decompress(std::span<const std::byte> in,
                                        std::span<std::byte> out) noexcept = 0;
};

class Codec {
 public:
  Codec() = default;
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;
  virtual ~Codec() = default;

  [[nodiscard]] virtual Encoding encoding() const = 0;
  // As a parameter would give it, with its level: "lz4:1".
  [[nodiscard]] virtual std::string name() const = 0;
  // Throws std::bad_alloc.
  [[nodiscard]] virtual std::unique_ptr<CodecContext> make_context() const = 0;
};

}  // namespace cswap
