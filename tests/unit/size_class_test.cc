#include "core/size_class.h"

#include <doctest/doctest.h>

namespace cswap {
namespace {

TEST_CASE("every object size has a class that holds it and wastes less than 16 bytes") {
  for (uint32_t bytes = 1; bytes <= kMaxObjectBytes; ++bytes) {
    const SizeClass size_class = size_class_of(bytes);
    REQUIRE(size_class > kNoClass);
    REQUIRE(size_class < kSizeClasses);
    REQUIRE(class_bytes(size_class) >= bytes);
    REQUIRE(class_bytes(size_class) - bytes < kObjectAlignBytes);
  }
}

TEST_CASE("a raw page without checksum fills its class exactly") {
  CHECK(class_bytes(size_class_of(kPageBytes)) == kPageBytes);
}

TEST_CASE("the objects of a cluster fit its bytes, its map and its 16-bit counts") {
  for (SizeClass c = 1; c < kSizeClasses; ++c) {
    const uint32_t capacity = cluster_capacity(c);
    REQUIRE(capacity >= 1);
    REQUIRE(capacity <= kMaxObjectsPerCluster);
    REQUIRE(capacity * class_bytes(c) <= kObjectClusterBytes);
  }
}

TEST_CASE("a full cluster wastes at most 1.25 % of its resident pages") {
  for (SizeClass c = 1; c < kSizeClasses; ++c) {
    const uint32_t used = cluster_capacity(c) * class_bytes(c);
    const uint32_t resident = (used + kPageBytes - 1) / kPageBytes * kPageBytes;
    CAPTURE(class_bytes(c));
    CHECK((resident - used) * 80 <= resident);
  }
}

TEST_CASE("a cluster gives up at most a quarter of the places that would fit") {
  for (SizeClass c = 1; c < kSizeClasses; ++c) {
    const uint32_t most = std::min(kObjectClusterBytes / class_bytes(c), kMaxObjectsPerCluster);
    REQUIRE(cluster_capacity(c) * 4 >= most * 3);
  }
}

}  // namespace
}  // namespace cswap
