// One store or zero of any alignment: prepared whole, then published whole.
//
// The pages that the range covers whole (the middle) are replaced unseen. A page that it covers in
// part (an edge; there are at most two) is read, changed and replaced:
//   1 under its slot cluster lock, copy word and object
//   2 without it, decompress, change, compress, take a place
//   3 under it again, compare word and object with the copy: equal means that the page is still
//     what was read, so the new one may be published; else start again at 1
// Comparing the bytes too makes a word that was reused for an equal place harmless. After
// kMaxPartialTries all three steps are done without letting go of the lock.
// Both edges are published before the middle, under both locks, so that nothing has been changed
// when preparing one of them again fails.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/page_codec.h"
#include "core/pool.h"

namespace cswap {

// What publishing words changes in the gauges; added to the statistics once a request.
struct GaugeDelta {
  int64_t stored_pages = 0;
  int64_t same_pages = 0;
  int64_t huge_pages = 0;
  int64_t compr_bytes = 0;

  // `sign` is 1 for a word that came, -1 for one that went.
  void count(SlotWord word, int64_t sign);
  void add_to(StatsShard& shard) const;
};

class WriteRequest {
 public:
  // `data` is what to write, or empty for `length` zeroes.
  WriteRequest(Pool& pool, Tenant& tenant, Worker& worker, uint64_t offset, uint64_t length,
               std::span<const std::byte> data);

  // Any Status but kOk leaves everything as it was. Takes slot cluster, object cluster and store
  // locks.
  Status run();

 private:
  static constexpr size_t kPrefetchAhead = 4;  // objects; measured, more give nothing
  // Rounds of find_room(), which ends sooner but while others free and take without a pause.
  static constexpr int kMaxRounds = 64;

  struct Edge {
    PageIndex page;
    uint32_t from = 0;  // bytes [from, to) of the page are written
    uint32_t to = 0;
    SlotWord seen;              // the word as it was when the page was read
    SlotWord word;              // as it is to be
    uint32_t buffer = 0;        // which of the worker's edge buffers it uses
    bool already_zero = false;  // zeroes over zeroes: nothing to publish
  };

  // Whether table pages that discards have left empty may be given back, which takes slot cluster
  // locks; kLeave while such are held.
  enum class Emptied { kSettle, kLeave };

  [[nodiscard]] std::span<Edge> edges() { return std::span(edges_).first(edge_count_); }
  void add_edge(PageIndex page, uint64_t from, uint64_t to);
  Status prepare();
  Status prepare_middle();
  Status prepare_batch(PageIndex first, size_t pages);
  Status reserve_slots();
  Status prepare_edge(Edge& edge);
  void read_edge_locked(Edge& edge);
  Status encode_edge(Edge& edge, Emptied emptied);
  [[nodiscard]] bool edge_unchanged_locked(const Edge& edge);
  Status publish_edges();
  Status try_publish_edges(bool prepare_under_lock, bool* published);
  void publish_edge_locked(Edge& edge);
  void publish_middle();
  template <typename Attempt>
  [[nodiscard]] bool find_room(Emptied emptied, bool for_new_page, const Attempt& attempt);
  [[nodiscard]] bool place(std::span<ObjectStore::Wanted> wanted, Emptied emptied);
  [[nodiscard]] ObjectStore::Wanted wanted_for(PageIndex page, const EncodedPage& encoded);
  void prefetch(const ObjectStore::Wanted& wanted) const;
  [[nodiscard]] SlotWord put_object(PageIndex page, const EncodedPage& encoded, ArenaOffset at);
  MemoryBudget::For add_credit(SlotWord replaced, uint32_t bytes);
  void count_published(SlotWord word);
  void displace(SlotWord old);
  void free_displaced();
  void drop(SlotWord* word);
  void roll_back();

  Pool& pool_;
  Tenant& tenant_;
  SlotTable& slots_;
  Worker& worker_;
  Worker::Scratch& scratch_;
  StatsShard& shard_;
  const uint64_t offset_;
  const std::span<const std::byte> data_;
  const bool is_zero_;
  PageIndex middle_begin_;
  PageIndex middle_end_;
  uint64_t prepared_ = 0;  // words of the middle that are ready
  std::array<Edge, Worker::kEdges> edges_;
  uint32_t edge_count_ = 0;
  MemoryBudget::Credit credit_;
  uint32_t displaced_ = 0;
  uint64_t poor_pages_ = 0;
  GaugeDelta delta_;
};

}  // namespace cswap
