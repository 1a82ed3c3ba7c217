#include "tests/model/shared_run.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "tests/model/content.h"

namespace cswap::test {
namespace {

constexpr size_t kDepth = 4;
constexpr uint64_t kMaxPages = 16;

}  // namespace

SharedPages::SharedPages(Area area, uint64_t writers)
    : area_(area), writers_(writers), progress_(writers * pages()) {}

std::vector<uint64_t> SharedPages::floor(uint64_t page) {
  std::vector<uint64_t> result;
  for (uint64_t w = 0; w < writers_; ++w) result.push_back(finished(w, page).load());
  return result;
}

std::string SharedPages::check(std::span<const std::byte> content, uint64_t page,
                               std::span<const uint64_t> floor) {
  if (all_zero(content)) return "";
  const std::string where = "shared page " + std::to_string(page) + ": ";
  const auto signature = signature_of(content);
  if (!signature) return where + "not wholly one writer's";
  if (signature->page != page) return where + "has page " + std::to_string(signature->page);
  if (signature->writer >= writers_) return where + "has an unknown writer";
  const std::string generation = "generation " + std::to_string(signature->generation) +
                                 " of writer " + std::to_string(signature->writer);
  if (signature->generation < floor[signature->writer]) return where + "has an old " + generation;
  if (signature->generation > sent(signature->writer, page).load()) {
    return where + "has a " + generation + " that was not written yet";
  }
  return "";
}

SharedRun::SharedRun(const Settings& settings, const std::string& socket_path, SharedPages& shared,
                     uint64_t writer, uint64_t seed)
    : settings_(settings),
      shared_(shared),
      writer_(writer),
      random_(seed),
      pipeline_(socket_path, kDepth,
                [this](Request& request, int error) { finish(request, error); }) {}

void SharedRun::run() {
  for (uint64_t i = 0; i < settings_.operations; ++i) submit_one();
  pipeline_.drain();
}

void SharedRun::submit_one() {
  constexpr Kind kKinds[] = {Kind::kWrite, Kind::kWrite, Kind::kWrite, Kind::kWrite, Kind::kRead,
                             Kind::kRead,  Kind::kRead,  Kind::kTrim,  Kind::kZero};
  auto request = std::make_unique<Request>();
  request->kind = kKinds[random_.below(std::size(kKinds))];
  const uint64_t first = random_.below(shared_.pages());
  const uint64_t count =
      std::min(random_.below(3) == 0 ? 1 + random_.below(kMaxPages) : 1, shared_.pages() - first);
  request->offset = shared_.area().begin + first * kPageBytes;
  request->length = count * kPageBytes;
  pipeline_.make_room(request->offset, request->end());
  if (request->kind == Kind::kWrite) sign_pages(*request);
  if (request->kind == Kind::kRead) {
    request->note = reads_++;
    auto& floors = floors_[request->note];
    for (uint64_t page = first; page < first + count; ++page) floors.push_back(shared_.floor(page));
  }
  pipeline_.submit(std::move(request));
}

void SharedRun::sign_pages(Request& request) {
  request.note = ++generation_;
  request.data.resize(request.length);
  for (uint64_t at = 0; at < request.length; at += kPageBytes) {
    const uint64_t page = first_page(request) + at / kPageBytes;
    const auto style = static_cast<Signature::Style>(
        random_.below(static_cast<uint64_t>(Signature::Style::kCount)));
    sign({style, writer_, page, generation_}, std::span(request.data).subspan(at, kPageBytes));
    shared_.sent(writer_, page) = generation_;
  }
}

void SharedRun::finish(Request& request, int error) {
  if (error == ENOSPC && settings_.limited() && request.kind == Kind::kWrite) {
    ++refused_;
    return;
  }
  if (error != 0)
    throw std::runtime_error("shared " + request.text() + ": " + std::strerror(error));
  const uint64_t first = first_page(request);
  for (uint64_t i = 0; i < request.length / kPageBytes; ++i) {
    if (request.kind == Kind::kWrite) shared_.finished(writer_, first + i) = request.note;
    if (request.kind != Kind::kRead) continue;
    const std::string wrong =
        shared_.check(std::span(request.data).subspan(i * kPageBytes, kPageBytes), first + i,
                      floors_[request.note][i]);
    if (!wrong.empty()) throw std::runtime_error(request.text() + ": " + wrong);
  }
  if (request.kind == Kind::kRead) floors_.erase(request.note);
}

}  // namespace cswap::test
