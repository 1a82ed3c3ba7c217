#include "core/pool.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <cstring>
#include <thread>

#include "core/check.h"
#include "core/page_codec.h"
#include "core/write_request.h"

namespace cswap {
namespace {

// Times one operation of a request into its worker's shard.
class Timer {
 public:
  Timer(StatsShard& shard, Operation operation, uint64_t pages)
      : shard_(shard),
        operation_(operation),
        order_(pages == 0 ? 0 : order_of(pages)),
        start_(Clock::now()) {}
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() {
    const auto taken = Clock::now() - start_;
    shard_.add_latency(operation_, order_,
                       static_cast<uint64_t>(std::chrono::nanoseconds(taken).count()));
  }

 private:
  using Clock = std::chrono::steady_clock;
  StatsShard& shard_;
  const Operation operation_;
  const uint32_t order_;
  const Clock::time_point start_;
};

uint64_t pages_touched(uint64_t offset, uint64_t length) {
  return ((offset + length + kPageBytes - 1) >> kPageShift) - (offset >> kPageShift);
}

}  // namespace

Pool::Pool(PoolOptions options, uint64_t arena_for_bytes)
    : options_(std::move(options)),
      budget_(options_.mem_limit_bytes, options_.accept_threshold_percent),
      store_(ObjectStore::arena_bytes_for(arena_for_bytes), budget_, options_.alloc),
      queues_(store_, budget_, options_.free, options_.checksum),
      workers_(*options_.codec, std::max(1u, std::thread::hardware_concurrency())) {
  if (options_.alloc == AllocMode::kGlobal) caches_.emplace(store_, budget_);
  if (options_.free == FreeMode::kAsync) {
    reclaimer_.emplace(
        queues_, [this] { give_back_memory(); }, options_.on_thread_start);
  }
}

Tenant& Pool::add_tenant(std::string name, uint64_t size_bytes) {
  tenants_.push_back(std::make_unique<Tenant>(std::move(name), size_bytes, budget_));
  return *tenants_.back();
}

Status Pool::store(Tenant& tenant, uint64_t offset, std::span<const std::byte> data) {
  if (data.empty()) return Status::kOk;
  const WorkerPool::Lease lease(workers_);
  StatsShard& shard = tenant.shard((*lease).index());
  const uint64_t pages = pages_touched(offset, data.size());
  const Timer timer(shard, Operation::kStore, pages);
  reconsider_limit();
  Status status = Status::kOk;
  if (options_.batch || pages == 1) {
    status = WriteRequest(*this, tenant, *lease, offset, data.size(), data).run();
    if (status == Status::kOk) shard.add_swpout(pages);
  } else {
    status = store_page_by_page(tenant, *lease, offset, data);
  }
  if (status != Status::kOk) note_refusal(shard, status);
  return status;
}

// As zswap stored a huge page before H. Zhu's batch: it was split first.
Status Pool::store_page_by_page(Tenant& tenant, Worker& worker, uint64_t offset,
                                std::span<const std::byte> data) {
  uint64_t stored = 0;
  Status status = Status::kOk;
  while (!data.empty()) {
    const size_t bytes = std::min<size_t>(data.size(), kPageBytes - offset % kPageBytes);
    status = WriteRequest(*this, tenant, worker, offset, bytes, data.first(bytes)).run();
    if (status != Status::kOk) break;
    ++stored;
    offset += bytes;
    data = data.subspan(bytes);
  }
  if (stored > 0) tenant.shard(worker.index()).add_swpout_page_by_page(stored);
  return status;
}

Status Pool::zero(Tenant& tenant, uint64_t offset, uint64_t length) {
  if (length == 0) return Status::kOk;
  const WorkerPool::Lease lease(workers_);
  StatsShard& shard = tenant.shard((*lease).index());
  const Timer timer(shard, Operation::kDiscard, pages_touched(offset, length));
  reconsider_limit();
  const Status status = WriteRequest(*this, tenant, *lease, offset, length, {}).run();
  if (status != Status::kOk) note_refusal(shard, status);
  return status;
}

void Pool::note_refusal(StatsShard& shard, Status status) {
  if (status != Status::kNoSpace) return;
  if (budget_.limit_bytes() == 0) {
    shard.add(Counter::kRejectAllocFail);  // the arena is too fragmented
    return;
  }
  shard.add(Counter::kPoolLimitHit);
  budget_.set_limit_reached();
}

bool Pool::allocate(Worker& worker, std::span<ObjectStore::Wanted> wanted) {
  ObjectStore::Hints& hints = worker.scratch().hints;
  return caches_ ? caches_->allocate_all(worker.index(), hints, wanted)
                 : store_.allocate_all(hints, wanted);
}

void Pool::free(Worker& worker, std::span<const SlotWord> objects, FreeQueues::Reason reason) {
  const FreeQueues::Need need = queues_.put(worker.index(), objects, reason);
  if (reclaimer_) reclaimer_->wake(need);
}

bool Pool::drain_waiting(Worker& worker) {
  const bool drained = queues_.drain(worker.index());
  return (caches_ && caches_->drop_all()) || drained;
}

void Pool::drain_free_queues() {
  {
    const WorkerPool::Lease lease(workers_);
    (void)drain_waiting(*lease);
  }
  if (!reclaimer_) return give_back_memory();
  reclaimer_->wake_for_trim();
  reclaimer_->finish();
}

bool Pool::settle_emptied() {
  bool any = false;
  for (const auto& tenant : tenants_) any = tenant->slots().settle_emptied() || any;
  return any;
}

// Gives memory back to the OS when a trim has left little in it.
void Pool::give_back_memory() {
  (void)settle_emptied();
  // Places in caches keep pages that once were in use.
  if (caches_ && caches_->bytes() > store_.live_bytes() / 8) (void)caches_->drop_all();
  store_.shrink();
}

// After the limit was hit, looks whether there is room again.
void Pool::reconsider_limit() {
  if (budget_.limit_reached()) budget_.reconsider(store_.live_bytes(), metadata_bytes());
}

Status Pool::load(Tenant& tenant, uint64_t offset, std::span<std::byte> data) {
  if (data.empty()) return Status::kOk;
  CSWAP_CHECK(offset + data.size() <= tenant.size_bytes());
  tenant.slots().prefetch({offset >> kPageShift});
  const WorkerPool::Lease lease(workers_);
  StatsShard& shard = tenant.shard((*lease).index());
  const uint64_t pages = pages_touched(offset, data.size());
  const Timer timer(shard, Operation::kLoad, pages);
  shard.add_swpin(pages);
  while (!data.empty()) {
    const auto from = static_cast<uint32_t>(offset % kPageBytes);
    const size_t bytes = std::min<size_t>(data.size(), kPageBytes - from);
    const Status status =
        load_page(tenant, *lease, {offset >> kPageShift}, from, data.first(bytes));
    if (status != Status::kOk) return status;
    offset += bytes;
    data = data.subspan(bytes);
  }
  return Status::kOk;
}

Status Pool::load_page(Tenant& tenant, Worker& worker, PageIndex page, uint32_t from,
                       std::span<std::byte> out) {
  SlotTable& slots = tenant.slots();
  const SlotTable::Index index = SlotTable::cluster_of(page);
  if (!slots.is_touched(index)) {
    std::memset(out.data(), 0, out.size());
    return Status::kOk;
  }
  Worker::Scratch& scratch = worker.scratch();
  SlotWord word;
  {
    SlotCluster& cluster = slots.cluster(index);
    const Guard guard(cluster.lock);
    word = slots.get(cluster, page);
    if (word.has_object()) {
      const std::byte* const object = store_.bytes(word.object_offset());
      if (word.is_raw() && !options_.checksum) {
        std::memcpy(out.data(), object + from, out.size());
        return Status::kOk;
      }
      std::memcpy(scratch.object.data(), object, stored_bytes(options_, word.object_bytes()));
    }
  }
  const bool whole = out.size() == kPageBytes;
  const std::span<std::byte> decoded = whole ? out : std::span<std::byte>(scratch.page);
  if (!decode_page(options_, worker.codec(), word, scratch.object, page, decoded)) {
    tenant.shard(worker.index()).add(Counter::kDecompressFail);
    return Status::kDamaged;
  }
  if (!whole) std::memcpy(out.data(), decoded.data() + from, out.size());
  return Status::kOk;
}

void Pool::discard(Tenant& tenant, uint64_t offset, uint64_t length) {
  CSWAP_CHECK(offset + length <= tenant.size_bytes());
  const WorkerPool::Lease lease(workers_);
  const Timer timer(tenant.shard((*lease).index()), Operation::kDiscard,
                    pages_touched(offset, length));
  const PageIndex first{(offset + kPageBytes - 1) >> kPageShift};
  const PageIndex end{(offset + length) >> kPageShift};
  discard_pages(tenant, *lease, first, end, true);
}

void Pool::discard_pages(Tenant& tenant, Worker& worker, PageIndex first, PageIndex end,
                         bool is_trim) {
  if (first >= end) return;
  const SlotTable& slots = tenant.slots();
  const SlotTable::Index end_index = SlotTable::cluster_of({end.value - 1}) + 1;
  for (SlotTable::Index index = slots.next_touched(SlotTable::cluster_of(first), end_index);
       index < end_index; index = slots.next_touched(index + 1, end_index)) {
    discard_cluster(tenant, worker, std::max(first, SlotTable::first_page_of(index)),
                    std::min(end, SlotTable::first_page_of(index + 1)), is_trim);
  }
  if (reclaimer_) {
    reclaimer_->wake_for_trim();
  } else {
    // The last objects wait for others that will not come.
    if (holds_nothing()) (void)queues_.drain(worker.index());
    give_back_memory();
  }
  reconsider_limit();
}

// No page, so that all objects that there are wait to be freed. Of two threads that have emptied
// their halves at the least the one that comes second here finds both empty.
bool Pool::holds_nothing() {
  asked_.fetch_add(1, std::memory_order_acq_rel);
  int64_t pages = 0;
  for (const auto& tenant : tenants_) {
    for (const StatsShard& shard : tenant->shards(workers_.made())) {
      pages += shard.get(Gauge::kStoredPages);
    }
  }
  return pages <= 0;
}

void Pool::discard_cluster(Tenant& tenant, Worker& worker, PageIndex first, PageIndex end,
                           bool is_trim) {
  SlotTable& slots = tenant.slots();
  const SlotTable::Index index = SlotTable::cluster_of(first);
  auto& displaced = worker.scratch().displaced;
  size_t objects = 0;
  GaugeDelta delta;
  {
    SlotCluster& cluster = slots.cluster(index);
    const Guard guard(cluster.lock);
    for (PageIndex page = first; page < end; ++page.value) {
      const SlotWord old = slots.exchange(cluster, page, SlotWord());
      delta.count(old, -1);
      if (old.has_object()) displaced[objects++] = old;
    }
    if (reclaimer_ && !budget_.near_limit()) {
      slots.settle_later(cluster, index);
    } else {
      slots.settle(cluster, index);
    }
  }
  free(worker, std::span(displaced).first(objects), FreeQueues::Reason::kTrimmed);
  StatsShard& shard = tenant.shard(worker.index());
  delta.add_to(shard);
  if (is_trim) shard.add(Counter::kNotifyFree, static_cast<uint64_t>(-delta.stored_pages));
}

void Pool::extents(Tenant& tenant, uint64_t offset, uint64_t length, const ExtentVisitor& visit) {
  SlotTable& slots = tenant.slots();
  const uint64_t end = offset + length;
  const SlotTable::Index end_index = SlotTable::cluster_of({(end - 1) >> kPageShift}) + 1;
  while (offset < end) {
    const SlotTable::Index index = SlotTable::cluster_of({offset >> kPageShift});
    const SlotTable::Index touched = slots.next_touched(index, end_index);
    if (touched > index) {
      const uint64_t stop = std::min(end, SlotTable::first_page_of(touched).value << kPageShift);
      if (!visit(offset, stop - offset, true)) return;
      offset = stop;
      continue;
    }
    std::bitset<kSlotClusterSlots> holes;
    const PageIndex first = SlotTable::first_page_of(index);
    const PageIndex last{
        std::min(first.value + kSlotClusterSlots, tenant.size_bytes() >> kPageShift)};
    {
      SlotCluster& cluster = slots.cluster(index);
      const Guard guard(cluster.lock);
      for (PageIndex page = first; page < last; ++page.value) {
        holes[page.value - first.value] = slots.get(cluster, page).is_zero();
      }
    }
    const uint64_t cluster_end = std::min(end, last.value << kPageShift);
    while (offset < cluster_end) {
      uint64_t page = offset >> kPageShift;
      const bool hole = holes[page - first.value];
      while (page < last.value && holes[page - first.value] == hole) ++page;
      const uint64_t stop = std::min(cluster_end, page << kPageShift);
      if (!visit(offset, stop - offset, hole)) return;
      offset = stop;
    }
  }
}

uint64_t Pool::metadata_bytes() const {
  uint64_t bytes = store_.metadata_bytes();
  for (const auto& tenant : tenants_) bytes += tenant->slots().resident_bytes();
  return bytes;
}

PoolSnapshot Pool::snapshot() const {
  PoolSnapshot snapshot;
  snapshot.compressor = options_.codec->name();
  snapshot.mem_used_total = budget_.used_bytes();
  snapshot.mem_used_max = budget_.used_max_bytes();
  snapshot.mem_limit = budget_.limit_bytes();
  snapshot.pool_total_size = store_.resident_bytes();
  snapshot.metadata_size = metadata_bytes();
  snapshot.headroom = snapshot.mem_limit > snapshot.mem_used_total
                          ? snapshot.mem_limit - snapshot.mem_used_total
                          : 0;
  snapshot.limit_reached = budget_.limit_reached();
  snapshot.workers = workers_.made();
  snapshot.alloc = options_.alloc == AllocMode::kCluster ? "cluster" : "global";
  snapshot.batch = options_.batch ? "on" : "off";
  snapshot.free = options_.free == FreeMode::kAsync ? "async" : "sync";
  if (caches_) snapshot.slot_cache_bytes = caches_->bytes();
  queues_.add_to(snapshot);
  snapshot.locks = LockStats::snapshot();
  for (const auto& tenant : tenants_) {
    TenantSnapshot sum = sum_shards(tenant->shards(workers_.made()));
    sum.name = tenant->name();
    sum.size_bytes = tenant->size_bytes();
    snapshot.tenants.push_back(std::move(sum));
  }
  return snapshot;
}

void Pool::check_invariants(int level) {
  drain_free_queues();
  store_.check_invariants(level);
  CSWAP_CHECK(budget_.used_bytes() == store_.resident_bytes() + metadata_bytes());
  uint64_t live = 0;
  for (const auto& tenant : tenants_) {
    tenant->slots().check_invariants();
    GaugeDelta delta;
    const uint64_t pages = tenant->size_bytes() >> kPageShift;
    SlotTable& slots = tenant->slots();
    const SlotTable::Index end = SlotTable::cluster_of({pages - 1}) + 1;
    for (SlotTable::Index index = slots.next_touched(0, end); index < end;
         index = slots.next_touched(index + 1, end)) {
      const uint64_t first = SlotTable::first_page_of(index).value;
      for (uint64_t page = first; page < std::min(first + kSlotClusterSlots, pages); ++page) {
        const SlotWord word = slots.peek({page});
        delta.count(word, 1);
        if (!word.has_object()) continue;
        const uint32_t bytes = stored_bytes(options_, word.object_bytes());
        live += class_bytes(size_class_of(bytes));
        if (level >= 2) CSWAP_CHECK(store_.holds(word.object_offset(), bytes));
      }
    }
    const TenantSnapshot sum = sum_shards(tenant->shards(workers_.made()));
    CSWAP_CHECK(sum.stored_pages == static_cast<uint64_t>(delta.stored_pages));
    CSWAP_CHECK(sum.same_pages == static_cast<uint64_t>(delta.same_pages));
    CSWAP_CHECK(sum.huge_pages == static_cast<uint64_t>(delta.huge_pages));
    CSWAP_CHECK(sum.compr_data_size == static_cast<uint64_t>(delta.compr_bytes));
  }
  // At the limit an object may have been given a place of a larger class.
  CSWAP_CHECK(options_.mem_limit_bytes > 0 ? live <= store_.live_bytes()
                                           : live == store_.live_bytes());
}

std::span<std::byte> Pool::object_bytes_for_test(Tenant& tenant, PageIndex page) {
  const SlotWord word = tenant.slots().peek(page);
  if (!word.has_object()) return {};
  return {store_.bytes(word.object_offset()), word.object_bytes()};
}

}  // namespace cswap
