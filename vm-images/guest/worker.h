// What one worker (a process or a thread of usemem) does with its memory, from allocation to free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "page_content.h"
#include "phases.h"
#include "usemem_options.h"

namespace cswap::guest {

struct Piece {
  std::byte* start;
  size_t bytes;
};

// Exits with 1 when the memory is refused.
Piece allocate_piece(const UsememOptions& options, size_t bytes);
void free_pieces(const UsememOptions& options, const std::vector<Piece>& pieces);

// Microseconds on a clock that never steps.
uint64_t now_us();

// The lines that vm-scalability's tool prints: a KB is 1024 bytes.
void print_rate(const char* what, uint64_t bytes, uint64_t usecs);
void print_free(uint64_t usecs);

// Writes or reads the memory as the options say. `prealloc` is the shared piece of --prealloc.
void run_access_worker(const UsememOptions& options, Phases& phases, const Piece* prealloc,
                       uint32_t worker);

// Fills, checks, rewrites and checks again. False at the first page that is not what was written.
bool run_verify_worker(const UsememOptions& options, Phases& phases, const PageContent& content,
                       uint32_t worker);

}  // namespace cswap::guest
