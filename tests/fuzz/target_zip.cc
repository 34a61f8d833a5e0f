#include "sim/weights/tensor.h"
#include "sim/weights/zip.h"
#include "tests/fuzz/fuzz.h"

// The directory of a zip archive: every entry lies within it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    for (const auto& [name, entry] : zip_entries(bytes).bytes)
      fuzz::promised(entry.empty() || (entry.data() >= bytes.data() &&
                                       entry.data() + entry.size() <= bytes.data() + size),
                     "an entry lies within the archive");
  } catch (const WrongBytes&) {
    return 0;
  }
  return 0;
}
