#include "core/write_request.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"

namespace cswap {
namespace {

bool is_new_page(const ObjectStore::Wanted& wanted) {
  return wanted.purpose == MemoryBudget::For::kNewPage;
}

}  // namespace

void GaugeDelta::count(SlotWord word, int64_t sign) {
  if (word.is_empty()) return;
  stored_pages += sign;
  if (word.is_same()) same_pages += sign;
  if (word.is_raw()) huge_pages += sign;
  if (word.has_object()) compr_bytes += sign * int64_t{word.object_bytes()};
}

void GaugeDelta::add_to(StatsShard& shard) const {
  if (stored_pages != 0) shard.add(Gauge::kStoredPages, stored_pages);
  if (same_pages != 0) shard.add(Gauge::kSamePages, same_pages);
  if (huge_pages != 0) shard.add(Gauge::kHugePages, huge_pages);
  if (compr_bytes != 0) shard.add(Gauge::kComprBytes, compr_bytes);
}

WriteRequest::WriteRequest(Pool& pool, Tenant& tenant, Worker& worker, uint64_t offset,
                           uint64_t length, std::span<const std::byte> data)
    : pool_(pool),
      tenant_(tenant),
      slots_(tenant.slots()),
      worker_(worker),
      scratch_(worker.scratch()),
      shard_(tenant.shard(worker.index())),
      offset_(offset),
      data_(data),
      is_zero_(data.empty()) {
  const uint64_t end = offset + length;
  CSWAP_CHECK(end <= tenant.size_bytes() && data.size() <= kMaxRequestBytes);
  middle_begin_.value = (offset + kPageBytes - 1) >> kPageShift;
  middle_end_.value = end >> kPageShift;
  const PageIndex first{offset >> kPageShift};
  const PageIndex last{end >> kPageShift};
  if (offset % kPageBytes != 0) {
    add_edge(first, offset % kPageBytes,
             std::min<uint64_t>(kPageBytes, end - first.value * kPageBytes));
  }
  const bool same_page = edge_count_ == 1 && first == last;
  if (end % kPageBytes != 0 && !same_page) add_edge(last, 0, end % kPageBytes);
  if (middle_end_ < middle_begin_) middle_end_ = middle_begin_;  // inside one page
}

void WriteRequest::add_edge(PageIndex page, uint64_t from, uint64_t to) {
  Edge& edge = edges_[edge_count_];
  edge.page = page;
  edge.from = static_cast<uint32_t>(from);
  edge.to = static_cast<uint32_t>(to);
  edge.buffer = edge_count_++;
}

Status WriteRequest::run() {
  Status status = prepare();
  if (status == Status::kOk) status = publish_edges();
  if (status == Status::kOk) {
    publish_middle();
  } else {
    roll_back();
  }
  if (credit_.bytes > 0) pool_.budget_.drop_credit(credit_);
  delta_.add_to(shard_);
  if (poor_pages_ > 0) shard_.add(Counter::kRejectCompressPoor, poor_pages_);
  return status;
}

Status WriteRequest::prepare() {
  if (!is_zero_) {
    if (const Status status = reserve_slots(); status != Status::kOk) return status;
    if (const Status status = prepare_middle(); status != Status::kOk) return status;
  }
  for (Edge& edge : edges()) {
    if (const Status status = prepare_edge(edge); status != Status::kOk) return status;
  }
  // Where nothing is to be published no lock is needed, and none of a slot cluster that holds
  // nothing may be taken: its descriptor would become resident.
  const auto all = edges();
  const auto kept =
      std::remove_if(all.begin(), all.end(), [](const Edge& edge) { return edge.already_zero; });
  edge_count_ = static_cast<uint32_t>(kept - all.begin());
  return Status::kOk;
}

Status WriteRequest::reserve_slots() {
  if (data_.empty()) return Status::kOk;
  const SlotTable::Index first = SlotTable::cluster_of({offset_ >> kPageShift});
  const SlotTable::Index last = SlotTable::cluster_of({(offset_ + data_.size() - 1) >> kPageShift});
  for (SlotTable::Index index = first; index <= last; ++index) {
    if (slots_.reserve(index)) continue;
    const bool found = find_room(Emptied::kSettle, true, [&] {
      // Nor may pages that the store keeps for objects to come stand in the way of a table page.
      pool_.store_.release_unused_pages();
      return slots_.reserve(index);
    });
    if (!found) return Status::kNoSpace;
  }
  return Status::kOk;
}

Status WriteRequest::prepare_middle() {
  PageIndex page = middle_begin_;
  while (page < middle_end_) {
    const size_t pages = std::min<uint64_t>(middle_end_.value - page.value, Worker::kBatchPages);
    if (const Status status = prepare_batch(page, pages); status != Status::kOk) return status;
    page.value += pages;
  }
  return Status::kOk;
}

// Encodes whole pages, then takes the places of all their objects in one call, then fills them. The
// words then name the objects and nothing else does.
Status WriteRequest::prepare_batch(PageIndex first, size_t pages) {
  Worker::Batch& batch = scratch_.batch;
  size_t objects = 0;
  size_t packed = 0;
  for (size_t i = 0; i < pages; ++i) {
    const PageIndex page{first.value + i};
    const auto content = data_.subspan(page.value * kPageBytes - offset_, kPageBytes);
    const auto out = std::span(batch.bytes).subspan(packed);
    EncodedPage& encoded = batch.pages[i];
    encoded = encode_page(pool_.options_, worker_.codec(), content, out);
    if (!encoded.needs_object()) continue;
    if (encoded.bytes.data() == out.data()) {
      packed += (encoded.bytes.size() + kObjectAlignBytes - 1) & ~size_t{kObjectAlignBytes - 1};
    }
    batch.wanted[objects++] = wanted_for(page, encoded);
  }
  const auto wanted = std::span(batch.wanted).first(objects);
  if (!place(wanted, Emptied::kSettle)) {
    for (const ObjectStore::Wanted& taken : wanted) {
      if (taken.has_place()) pool_.store_.free({&taken.at, 1});
    }
    return Status::kNoSpace;
  }
  size_t next = 0;
  // Of the first there is nothing to do meanwhile.
  for (size_t i = 1; i < std::min(objects, kPrefetchAhead); ++i) prefetch(wanted[i]);
  for (size_t i = 0; i < pages; ++i) {
    const EncodedPage& encoded = batch.pages[i];
    if (encoded.needs_object() && next + kPrefetchAhead < objects) {
      prefetch(wanted[next + kPrefetchAhead]);
    }
    scratch_.words[prepared_++] = encoded.needs_object()
                                      ? put_object({first.value + i}, encoded, wanted[next++].at)
                                      : encoded.word;
  }
  return Status::kOk;
}

ObjectStore::Wanted WriteRequest::wanted_for(PageIndex page, const EncodedPage& encoded) {
  ObjectStore::Wanted wanted;
  wanted.bytes = stored_bytes(pool_.options_, encoded.bytes.size());
  if (pool_.budget_.limit_bytes() > 0) {
    wanted.purpose = add_credit(slots_.peek(page), wanted.bytes);
  }
  return wanted;
}

// After memory was refused: frees what waits and tries again, until neither that nor another
// request has freed anything. Others put nothing aside meanwhile, so what they free can be found;
// but they may also take what this one has freed. After the limit was hit, new pages do not get
// even what others left in resident pages until there is room again.
template <typename Attempt>
bool WriteRequest::find_room(Emptied emptied, bool for_new_page, const Attempt& attempt) {
  MemoryBudget::Seeker seeker(pool_.budget_);
  for (int round = 0; round < kMaxRounds; ++round) {
    bool any = pool_.drain_waiting(worker_);
    if (emptied == Emptied::kSettle) any = pool_.settle_emptied() || any;
    pool_.reconsider_limit();
    if (for_new_page && pool_.budget_.limit_reached()) return false;
    (void)seeker.something_was_freed();  // by that; what counts is what comes after
    if (attempt()) return true;
    if (!any && !seeker.something_was_freed()) return false;
  }
  return false;
}

// All of them, or false.
bool WriteRequest::place(std::span<ObjectStore::Wanted> wanted, Emptied emptied) {
  const bool any_new = std::ranges::any_of(wanted, is_new_page);
  const bool refused = any_new && pool_.budget_.limit_reached();
  if (!refused && pool_.allocate(worker_, wanted)) return true;
  return find_room(emptied, any_new, [&] {
    // Not from a cache, which would be filled again.
    if (pool_.store_.allocate_all(scratch_.hints, wanted)) return true;
    return std::ranges::all_of(wanted, [this](ObjectStore::Wanted& next) {
      return next.has_place() || pool_.store_.allocate_at_limit(scratch_.hints, next);
    });
  });
}

// Lets the cache lines of an object's place, which are cold, come while others are filled.
void WriteRequest::prefetch(const ObjectStore::Wanted& wanted) const {
  const std::byte* const place = pool_.store_.bytes(wanted.at);
  for (uint32_t at = 0; at < wanted.bytes; at += 64) __builtin_prefetch(place + at, 1);
}

// Fills the place of an object; returns the word that names it.
SlotWord WriteRequest::put_object(PageIndex page, const EncodedPage& encoded, ArenaOffset at) {
  write_object(pool_.options_, page, encoded.bytes, pool_.store_.bytes(at));
  return SlotWord::object(encoded.state, encoded.encoding, 0,
                          static_cast<uint32_t>(encoded.bytes.size()), at);
}

// Tells the budget what the object of `bytes` will replace, and the caller as what to ask for it.
MemoryBudget::For WriteRequest::add_credit(SlotWord replaced, uint32_t bytes) {
  if (!replaced.has_object()) return MemoryBudget::For::kNewPage;
  const SizeClass old_class = size_class_of(stored_bytes(pool_.options_, replaced.object_bytes()));
  const bool grows = size_class_of(bytes) > old_class;
  // An object reaches into two pages at most.
  const MemoryBudget::Credit credit{class_bytes(old_class), grows ? 0 : 2 * kPageBytes};
  pool_.budget_.add_credit(credit);
  credit_.bytes += credit.bytes;
  credit_.slack_bytes += credit.slack_bytes;
  return grows ? MemoryBudget::For::kGrowth : MemoryBudget::For::kReplacement;
}

Status WriteRequest::prepare_edge(Edge& edge) {
  if (!slots_.is_touched(SlotTable::cluster_of(edge.page))) {
    edge.seen = SlotWord();
  } else {
    SlotCluster& cluster = slots_.cluster(SlotTable::cluster_of(edge.page));
    const Guard guard(cluster.lock);
    read_edge_locked(edge);
  }
  return encode_edge(edge, Emptied::kSettle);
}

void WriteRequest::read_edge_locked(Edge& edge) CSWAP_NO_TSA {
  SlotCluster& cluster = slots_.cluster(SlotTable::cluster_of(edge.page));
  edge.seen = slots_.get(cluster, edge.page);
  if (!edge.seen.has_object()) return;
  std::memcpy(scratch_.edge_object[edge.buffer].data(),
              pool_.store_.bytes(edge.seen.object_offset()),
              stored_bytes(pool_.options_, edge.seen.object_bytes()));
}

Status WriteRequest::encode_edge(Edge& edge, Emptied emptied) {
  edge.already_zero = is_zero_ && edge.seen.is_zero();
  if (edge.already_zero) return Status::kOk;
  auto& page = scratch_.edge_page[edge.buffer];
  if (!decode_page(pool_.options_, worker_.codec(), edge.seen, scratch_.edge_object[edge.buffer],
                   edge.page, page)) {
    shard_.add(Counter::kDecompressFail);
    return Status::kDamaged;
  }
  if (is_zero_) {
    std::memset(page.data() + edge.from, 0, edge.to - edge.from);
  } else {
    std::memcpy(page.data() + edge.from,
                data_.data() + (edge.page.value * kPageBytes + edge.from - offset_),
                edge.to - edge.from);
  }
  const EncodedPage encoded = encode_page(pool_.options_, worker_.codec(), page, scratch_.object);
  edge.word = encoded.word;
  if (!encoded.needs_object()) return Status::kOk;
  ObjectStore::Wanted wanted = wanted_for(edge.page, encoded);
  if (!place({&wanted, 1}, emptied)) return Status::kNoSpace;
  edge.word = put_object(edge.page, encoded, wanted.at);
  return Status::kOk;
}

bool WriteRequest::edge_unchanged_locked(const Edge& edge) CSWAP_NO_TSA {
  if (edge.already_zero) return true;
  const SlotCluster& cluster = slots_.cluster(SlotTable::cluster_of(edge.page));
  const SlotWord word = slots_.get(cluster, edge.page);
  if (word != edge.seen) return false;
  return !word.has_object() || std::memcmp(pool_.store_.bytes(word.object_offset()),
                                           scratch_.edge_object[edge.buffer].data(),
                                           stored_bytes(pool_.options_, word.object_bytes())) == 0;
}

Status WriteRequest::publish_edges() {
  bool published = edge_count_ == 0;
  for (int tries = 0; !published; ++tries) {
    const Status status = try_publish_edges(tries >= kMaxPartialTries, &published);
    if (status != Status::kOk) return status;
    if (published) break;
    for (Edge& edge : edges()) {
      drop(&edge.word);
      if (const Status again = prepare_edge(edge); again != Status::kOk) return again;
    }
  }
  free_displaced();
  return Status::kOk;
}

// The analysis cannot follow one or two locks, chosen at run time.
Status WriteRequest::try_publish_edges(bool prepare_under_lock, bool* published) CSWAP_NO_TSA {
  SlotCluster& first = slots_.cluster(SlotTable::cluster_of(edges_[0].page));
  SlotCluster& last = slots_.cluster(SlotTable::cluster_of(edges_[edge_count_ - 1].page));
  first.lock.lock();
  if (&last != &first) last.lock.lock();
  Status status = Status::kOk;
  if (prepare_under_lock) {
    for (Edge& edge : edges()) {
      drop(&edge.word);
      read_edge_locked(edge);
      status = encode_edge(edge, Emptied::kLeave);
      if (status != Status::kOk) break;
    }
    *published = status == Status::kOk;
  } else {
    *published = std::ranges::all_of(
        edges(), [this](const Edge& edge) CSWAP_NO_TSA { return edge_unchanged_locked(edge); });
  }
  if (*published) {
    for (Edge& edge : edges()) publish_edge_locked(edge);
  }
  if (&last != &first) last.lock.unlock();
  first.lock.unlock();
  return status;
}

void WriteRequest::publish_edge_locked(Edge& edge) CSWAP_NO_TSA {
  if (edge.already_zero) return;
  SlotCluster& cluster = slots_.cluster(SlotTable::cluster_of(edge.page));
  displace(slots_.exchange(cluster, edge.page, edge.word));
  count_published(edge.word);
  edge.word = SlotWord();  // the table's now
}

void WriteRequest::publish_middle() {
  if (is_zero_) {
    pool_.discard_pages(tenant_, worker_, middle_begin_, middle_end_, false);
    return;
  }
  PageIndex page = middle_begin_;
  while (page < middle_end_) {
    const SlotTable::Index index = SlotTable::cluster_of(page);
    const PageIndex end = std::min(middle_end_, SlotTable::first_page_of(index + 1));
    {
      SlotCluster& cluster = slots_.cluster(index);
      const Guard guard(cluster.lock);
      for (; page < end; ++page.value) {
        const SlotWord word = scratch_.words[page.value - middle_begin_.value];
        displace(slots_.exchange(cluster, page, word));
        count_published(word);
      }
    }
    free_displaced();
  }
}

void WriteRequest::count_published(SlotWord word) {
  delta_.count(word, 1);
  if (word.is_raw() && pool_.options_.codec->encoding() != Encoding::kRaw) ++poor_pages_;
}

void WriteRequest::displace(SlotWord old) {
  delta_.count(old, -1);
  if (old.has_object()) scratch_.displaced[displaced_++] = old;
}

void WriteRequest::free_displaced() {
  if (displaced_ == 0) return;
  pool_.free(worker_, std::span(scratch_.displaced).first(displaced_),
             FreeQueues::Reason::kReplaced);
  displaced_ = 0;
}

// Gives back the place of an object that was never published.
void WriteRequest::drop(SlotWord* word) {
  if (word->has_object()) {
    const ArenaOffset at = word->object_offset();
    pool_.store_.free({&at, 1});
  }
  *word = SlotWord();
}

void WriteRequest::roll_back() {
  for (uint64_t i = 0; i < prepared_; ++i) drop(&scratch_.words[i]);
  for (Edge& edge : edges()) drop(&edge.word);
  pool_.store_.shrink();  // nothing will take the pages that this request took
  if (is_zero_) return;
  // What reserve_slots() took and nobody filled.
  const SlotTable::Index end =
      SlotTable::cluster_of({(offset_ + data_.size() - 1) >> kPageShift}) + 1;
  for (SlotTable::Index index =
           slots_.next_touched(SlotTable::cluster_of({offset_ >> kPageShift}), end);
       index < end; index = slots_.next_touched(index + 1, end)) {
    SlotCluster& cluster = slots_.cluster(index);
    const Guard guard(cluster.lock);
    slots_.settle(cluster, index);
  }
}

}  // namespace cswap
