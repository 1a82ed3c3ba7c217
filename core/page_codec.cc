#include "core/page_codec.h"

#include <xxhash.h>

#include <cstring>

#include "compress/same_filled.h"

namespace cswap {
namespace {

uint64_t checksum_of(PageIndex index, std::span<const std::byte> content) {
  return XXH3_64bits_withSeed(content.data(), content.size(), index.value);
}

EncodedPage encode_same(uint64_t fill, std::span<std::byte> out) {
  EncodedPage encoded;
  if (const auto word = SlotWord::same(fill)) {
    encoded.word = *word;
    return encoded;
  }
  // The few words that a slot word cannot hold are objects of eight bytes.
  std::memcpy(out.data(), &fill, sizeof fill);
  encoded.state = SlotWord::State::kSameObject;
  encoded.bytes = out.first(sizeof fill);
  return encoded;
}

}  // namespace

EncodedPage encode_page(const PoolOptions& options, CodecContext& codec,
                        std::span<const std::byte> page, std::span<std::byte> out) {
  if (options.same_filled) {
    if (const auto fill = repeated_word(page)) return encode_same(*fill, out);
  }
  EncodedPage encoded;
  encoded.state = SlotWord::State::kObject;
  const size_t length = codec.compress(page, out.first(kMaxCompressedBytes));
  if (length == 0) {
    encoded.bytes = page;
  } else {
    encoded.encoding = options.codec->encoding();
    encoded.bytes = out.first(length);
  }
  return encoded;
}

void write_object(const PoolOptions& options, PageIndex index, std::span<const std::byte> content,
                  std::byte* to) {
  std::memcpy(to, content.data(), content.size());
  if (!options.checksum) return;
  const uint64_t checksum = checksum_of(index, content);
  std::memcpy(to + content.size(), &checksum, sizeof checksum);
}

bool decode_page(const PoolOptions& options, CodecContext& codec, SlotWord word,
                 std::span<const std::byte> object, PageIndex index, std::span<std::byte> page) {
  if (word.is_empty()) {
    fill_with_word(page, 0);
    return true;
  }
  if (word.state() == SlotWord::State::kSame) {
    fill_with_word(page, word.same_fill());
    return true;
  }
  // A word that no encoder makes, or more than there is, would be read beyond the object.
  if (!word.has_object() || stored_bytes(options, word.object_bytes()) > object.size())
    return false;
  const auto content = object.first(word.object_bytes());
  if (options.checksum) {
    uint64_t checksum;
    std::memcpy(&checksum, object.data() + content.size(), sizeof checksum);
    if (checksum != checksum_of(index, content)) return false;
  }
  if (word.state() == SlotWord::State::kSameObject) {
    uint64_t fill;
    if (content.size() != sizeof fill) return false;
    std::memcpy(&fill, content.data(), sizeof fill);
    fill_with_word(page, fill);
    return true;
  }
  if (word.encoding() == Encoding::kRaw) {
    if (content.size() != page.size()) return false;
    std::memcpy(page.data(), content.data(), page.size());
    return true;
  }
  return word.encoding() == options.codec->encoding() && codec.decompress(content, page);
}

}  // namespace cswap
