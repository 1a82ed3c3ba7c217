// Between a guest page and what the pool keeps of it: a slot word, and for most pages the bytes of
// an object. Takes no lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/codec.h"
#include "core/options.h"
#include "core/size_class.h"
#include "core/slot_word.h"
#include "core/types.h"

namespace cswap {

// A compressed page of more bytes than this is stored raw: its size class would be that of a raw
// page, and a raw page is loaded with one copy.
inline constexpr uint32_t kMaxCompressedBytes = kPageBytes - kObjectAlignBytes;

// An encoded page before it has a place: `word` alone when it needs no object, else the bytes that
// the object is to hold, and what its word is to say.
struct EncodedPage {
  SlotWord word;
  SlotWord::State state = SlotWord::State::kEmpty;
  Encoding encoding = Encoding::kRaw;
  std::span<const std::byte> bytes;  // of the page or of `out`; empty: no object

  [[nodiscard]] bool needs_object() const { return !bytes.empty(); }
};

// Encodes a whole page into `out`, of at least kMaxCompressedBytes.
[[nodiscard]] EncodedPage encode_page(const PoolOptions& options, CodecContext& codec,
                                      std::span<const std::byte> page, std::span<std::byte> out);

// Bytes of the object of `bytes` of content: with its checksum when there is one.
[[nodiscard]] inline uint32_t stored_bytes(const PoolOptions& options, size_t bytes) {
  return static_cast<uint32_t>(bytes) + (options.checksum ? kChecksumBytes : 0);
}

// Writes content, and checksum when asked, to an object's place of stored_bytes(). The checksum is
// over the content and the page's index, so that an object read for another page fails too.
void write_object(const PoolOptions& options, PageIndex index, std::span<const std::byte> content,
                  std::byte* to);

// Restores a whole page from its word and a copy of its object's stored_bytes(). False when the
// object or the word is damaged: `page` is then undefined. Safe on any bytes and any word.
[[nodiscard]] bool decode_page(const PoolOptions& options, CodecContext& codec, SlotWord word,
                               std::span<const std::byte> object, PageIndex index,
                               std::span<std::byte> page);

}  // namespace cswap
