// The nbdkit callbacks, in the order of the server's life: configuration, start, connection, data,
// end. Each only forwards; the pool does the work.

#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <string>

#include "core/pool.h"
#include "plugin/callback_guard.h"
#include "plugin/config.h"
#include "plugin/memory_lock.h"
#include "plugin/stats_server.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

namespace cswap {
namespace {

struct Server {
  Config config;
  std::unique_ptr<Pool> pool;
  Tenant* tenant = nullptr;  // of the one export, ""
  std::unique_ptr<StatsServer> stats;
};

// Made by load, deleted by unload. A plain pointer: nbdkit's parent process ends with exit() after
// the fork, and must not destroy what the child serves.
Server* server = nullptr;

// Reports a message if there is one; what a callback returns.
int report(const std::string& message) {
  if (message.empty()) return 0;
  nbdkit_error("%s", message.c_str());
  return -1;
}

// A full pool refuses every new page until there is room: a line in the log now and then tells of
// it, not one for each page.
bool may_log_full_pool() {
  using Clock = std::chrono::steady_clock;
  static constexpr auto kInterval = std::chrono::minutes(1);
  static std::atomic<Clock::rep> quiet_until{Clock::time_point::min().time_since_epoch().count()};
  const auto now = Clock::now();
  Clock::rep until = quiet_until.load(std::memory_order_relaxed);
  return now.time_since_epoch().count() >= until &&
         quiet_until.compare_exchange_strong(until, (now + kInterval).time_since_epoch().count(),
                                             std::memory_order_relaxed);
}

int report(const char* operation, uint64_t offset, Status status) {
  if (status == Status::kNoSpace) {
    if (may_log_full_pool()) {
      nbdkit_error("%s at %" PRIu64
                   ": the pool is at its memory limit: writes of new pages fail with ENOSPC until "
                   "pages are trimmed; raise mem_limit if that is too small",
                   operation, offset);
    }
  } else if (status == Status::kDamaged) {
    nbdkit_error("%s at %" PRIu64 ": a stored page is damaged (counted in decompress_fail)",
                 operation, offset);
  }
  if (status == Status::kOk) return 0;
  nbdkit_set_error(to_errno(status));
  return -1;
}

// ---- configuration

void cswap_load() {
  guard_callback("load", 0, [] {
    server = new Server;
    return 0;
  });
}

int cswap_config(const char* key, const char* value) {
  return guard_callback("config", -1, [&] {
    if (server == nullptr) throw std::bad_alloc();
    return report(server->config.set(key, value));
  });
}

int cswap_config_complete() {
  return guard_callback("config", -1, [] {
    if (server == nullptr) throw std::bad_alloc();
    return report(server->config.complete());
  });
}

void cswap_dump_plugin() {
  std::printf("cswap_version=%s\n", CSWAP_VERSION);
  std::printf("cswap_compressors=lz4 zstd none\n");
  std::printf("cswap_alloc=cluster global\n");
  std::printf("cswap_batch=on off\n");
  std::printf("cswap_free=async sync\n");
  std::printf("cswap_page_size=%u\n", kPageBytes);
  std::printf("cswap_min_size=%" PRIu64 "\n", kMinDeviceBytes);
  std::printf("cswap_max_size=%" PRIu64 "\n", kMaxDeviceBytes);
}

// ---- start

// Here the user still sees errors: nothing that can fail is left for after the fork if it can be
// tried before.
int cswap_get_ready() {
  return guard_callback("get_ready", -1, [] {
    const Config& config = server->config;
    const uint64_t reserve_bytes = ObjectStore::arena_bytes_for(config.size_bytes());
    if (report(MemoryLock::prepare(config.mlock(), reserve_bytes)) != 0) return -1;
    {
      // Throws when there is no address space for it. Made again after the fork, where it is
      // locked as it is filled, or not at all.
      const Mapping trial(reserve_bytes, "the pool");
    }
    if (!config.stats()) return 0;
    StatsHooks hooks;
    hooks.snapshot = [] { return server->pool->snapshot(); };
    hooks.on_thread_start = [] { MemoryLock::set_io_flusher(); };
    hooks.log = [](const std::string& message) { nbdkit_debug("%s", message.c_str()); };
    server->stats = std::make_unique<StatsServer>(*config.stats(), std::move(hooks));
    return report(server->stats->bind(config.stats_public()));
  });
}

int cswap_after_fork() {
  return guard_callback("after_fork", -1, [] {
    const Config& config = server->config;
    // The threads of nbdkit that serve connections inherit it.
    if (!MemoryLock::set_io_flusher()) {
      nbdkit_debug("PR_SET_IO_FLUSHER is not allowed (it needs CAP_SYS_RESOURCE)");
    }
    if (report(MemoryLock::lock(config.mlock())) != 0) return -1;
    PoolOptions options = config.pool();
    options.on_thread_start = [] { MemoryLock::set_io_flusher(); };
    server->pool = std::make_unique<Pool>(std::move(options), config.size_bytes());
    server->tenant = &server->pool->add_tenant("", config.size_bytes());
    nbdkit_debug("cswap " CSWAP_VERSION " serves %" PRIu64
                 " bytes of a new, empty device; nothing of an earlier server's is in it",
                 config.size_bytes());
    return server->stats ? report(server->stats->start()) : 0;
  });
}

// ---- connection

int cswap_list_exports(int, int, nbdkit_exports* exports) {
  return nbdkit_add_export(exports, "", "compressed swap device");
}

const char* cswap_default_export(int, int) { return ""; }

void* cswap_open(int) {
  return guard_callback("open", static_cast<void*>(nullptr), []() -> void* {
    const char* const name = nbdkit_export_name();
    if (name == nullptr) return nullptr;
    if (*name != '\0') {
      nbdkit_error("there is no export of that name; the only one is the default export \"\"");
      nbdkit_set_error(ENOENT);
      return nullptr;
    }
    return server->tenant;
  });
}

const char* cswap_export_description(void*) { return "compressed swap device"; }

int64_t cswap_get_size(void* handle) {
  return static_cast<int64_t>(static_cast<const Tenant*>(handle)->size_bytes());
}

int cswap_block_size(void*, uint32_t* minimum, uint32_t* preferred, uint32_t* maximum) {
  *minimum = 1;
  *preferred = kPageBytes;
  *maximum = kMaxRequestBytes;
  return 0;
}

int always(void*) { return 1; }
int never(void*) { return 0; }
int can_fua(void*) { return NBDKIT_FUA_NATIVE; }
int can_cache(void*) { return NBDKIT_CACHE_NATIVE; }

// ---- data

int cswap_pread(void* handle, void* buffer, uint32_t count, uint64_t offset, uint32_t) {
  return guard_callback("pread", -1, [&] {
    return report("read", offset,
                  server->pool->load(*static_cast<Tenant*>(handle), offset,
                                     {static_cast<std::byte*>(buffer), count}));
  });
}

int cswap_pwrite(void* handle, const void* buffer, uint32_t count, uint64_t offset, uint32_t) {
  return guard_callback("pwrite", -1, [&] {
    return report("write", offset,
                  server->pool->store(*static_cast<Tenant*>(handle), offset,
                                      {static_cast<const std::byte*>(buffer), count}));
  });
}

int cswap_zero(void* handle, uint32_t count, uint64_t offset, uint32_t) {
  return guard_callback("zero", -1, [&] {
    return report("zero", offset, server->pool->zero(*static_cast<Tenant*>(handle), offset, count));
  });
}

int cswap_trim(void* handle, uint32_t count, uint64_t offset, uint32_t) {
  return guard_callback("trim", -1, [&] {
    server->pool->discard(*static_cast<Tenant*>(handle), offset, count);
    return 0;
  });
}

int cswap_extents(void* handle, uint32_t count, uint64_t offset, uint32_t flags,
                  nbdkit_extents* extents) {
  return guard_callback("extents", -1, [&] {
    int result = 0;
    const auto add = [&](uint64_t at, uint64_t length, bool hole) {
      const uint32_t type = hole ? NBDKIT_EXTENT_HOLE | NBDKIT_EXTENT_ZERO : 0;
      result = nbdkit_add_extent(extents, at, length, type);
      return result == 0 && (flags & NBDKIT_FLAG_REQ_ONE) == 0;
    };
    server->pool->extents(*static_cast<Tenant*>(handle), offset, count, add);
    return result;
  });
}

// What was written is visible to every connection at once, and it is in memory already.
int cswap_flush(void*, uint32_t) { return 0; }
int cswap_cache(void*, uint32_t, uint64_t, uint32_t) { return 0; }

// ---- end

void cswap_cleanup() {
  guard_callback("cleanup", 0, [] {
    if (server != nullptr && server->stats) server->stats->stop();
    return 0;
  });
}

void cswap_unload() {
  guard_callback("unload", 0, [] {
    delete server;
    server = nullptr;
    return 0;
  });
}

nbdkit_plugin make_plugin() {
  nbdkit_plugin plugin{};
  plugin.name = "cswap";
  plugin.longname = "cswap compressed swap device";
  plugin.version = CSWAP_VERSION;
  plugin.description = "block devices made to be swapped on, compressed in memory";
  plugin.load = cswap_load;
  plugin.unload = cswap_unload;
  plugin.config = cswap_config;
  plugin.config_complete = cswap_config_complete;
  plugin.config_help = Config::kHelp;
  plugin.magic_config_key = "size";
  plugin.dump_plugin = cswap_dump_plugin;
  plugin.get_ready = cswap_get_ready;
  plugin.after_fork = cswap_after_fork;
  plugin.cleanup = cswap_cleanup;
  plugin.list_exports = cswap_list_exports;
  plugin.default_export = cswap_default_export;
  plugin.open = cswap_open;
  plugin.export_description = cswap_export_description;
  plugin.get_size = cswap_get_size;
  plugin.block_size = cswap_block_size;
  plugin.can_write = always;
  plugin.can_flush = always;
  plugin.can_trim = always;
  plugin.can_zero = always;
  plugin.can_fast_zero = always;
  plugin.can_extents = always;
  plugin.can_multi_conn = always;
  plugin.can_fua = can_fua;
  plugin.can_cache = can_cache;
  plugin.is_rotational = never;
  plugin.pread = cswap_pread;
  plugin.pwrite = cswap_pwrite;
  plugin.zero = cswap_zero;
  plugin.trim = cswap_trim;
  plugin.extents = cswap_extents;
  plugin.flush = cswap_flush;
  plugin.cache = cswap_cache;
  // After an error, what it was is in nbdkit_set_error.
  plugin.errno_is_preserved = 0;
  return plugin;
}

nbdkit_plugin plugin = make_plugin();

}  // namespace
}  // namespace cswap

using cswap::plugin;
NBDKIT_REGISTER_PLUGIN(plugin)
