// decode_page(): any slot word with any object bytes gives a page or a refusal, and touches nothing
// but them.
//
// Input: a byte of flags, eight bytes of slot word, the object.
//   flags 1  zstd, else lz4
//         2  checksum on
//         4  the word is made to fit the object, so that most inputs reach the codec
//         8  the checksum is made right, so that they also do with it on
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "compress/codecs.h"
#include "core/page_codec.h"

namespace {

using namespace cswap;

struct Decoder {
  explicit Decoder(const char* name) : context(parse_codec(name)->make_context()) {
    options.codec = parse_codec(name);
  }
  PoolOptions options;
  std::unique_ptr<CodecContext> context;
};

constexpr PageIndex kPage{7};

void make_fit(const PoolOptions& options, std::vector<std::byte>& object, bool right_checksum,
              SlotWord* word) {
  const size_t checksum = options.checksum ? kChecksumBytes : 0;
  if (object.size() < checksum) return;
  const size_t content = std::min<size_t>(object.size() - checksum, kPageBytes);
  object.resize(content + checksum);
  // Raw pages are of one size only.
  const Encoding encoding = content == kPageBytes ? Encoding::kRaw : options.codec->encoding();
  *word =
      SlotWord::object(SlotWord::State::kObject, encoding, 0, static_cast<uint32_t>(content), {64});
  if (!right_checksum) return;
  const std::vector<std::byte> copy(object.begin(),
                                    object.begin() + static_cast<ptrdiff_t>(content));
  write_object(options, kPage, copy, object.data());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Decoder lz4("lz4");
  static Decoder zstd("zstd");
  if (size < 9) return 0;
  const uint8_t flags = data[0];
  Decoder& decoder = (flags & 1) != 0 ? zstd : lz4;
  decoder.options.checksum = (flags & 2) != 0;
  uint64_t bits;
  std::memcpy(&bits, data + 1, sizeof bits);
  SlotWord word(bits);
  const auto* const bytes = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> object(bytes + 9, bytes + size);
  if ((flags & 4) != 0) make_fit(decoder.options, object, (flags & 8) != 0, &word);
  object.shrink_to_fit();
  // On the heap, for the sanitizer to see where it ends.
  const std::unique_ptr<std::byte[]> page(new std::byte[kPageBytes]);
  const bool decoded =
      decode_page(decoder.options, *decoder.context, word, object, kPage, {page.get(), kPageBytes});
  const bool needs_nothing = word.is_empty() || word.state() == SlotWord::State::kSame;
  if (needs_nothing && !decoded) std::abort();
  if (decoded && !needs_nothing && !word.has_object()) std::abort();
  return 0;
}
