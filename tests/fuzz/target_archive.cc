#include "sim/tools/explain/archive.h"

#include <set>

#include "tests/fuzz/fuzz.h"

// Archives of what a job left: whatever they say, what comes out stays within the limits.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  static fuzz::MemoryFile file;
  constexpr ArchiveLimits kLimits{.bytes = int64_t{1} << 22, .files = 100};
  const auto archived = read_archive(file.holding(fuzz::text_of(data, size)), kLimits);
  if (!archived) {
    fuzz::check_errors(archived.errors());
    return 0;
  }
  int64_t bytes = 0;
  std::set<std::string> names;
  for (const ArchivedFile& one : archived.value()) {
    bytes += static_cast<int64_t>(one.bytes.size());
    fuzz::promised(!one.name.empty() && names.insert(one.name).second, "each file has a name");
  }
  fuzz::promised(bytes <= kLimits.bytes + (int64_t{1} << 20) && names.size() <= kLimits.files,
                 "no more than the limits allow");
  return 0;
}
