#include "scenarios/base/hash.h"
#include "scenarios/checkpoint_file.h"
#include "tests/fuzz/fuzz.h"

// A checkpoint of lockstep's own, with the hash that belongs to it: 16 bytes of an input count as
// any.
namespace {

std::string hash_of(const std::string& bytes) {
  lockstep::Hash128 hash;
  hash.update(bytes.data(), bytes.size());
  const auto digest = hash.digest();
  return {reinterpret_cast<const char*>(digest.data()), sizeof digest};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  std::string bytes(fuzz::text_of(data, size));
  try {
    (void)decode_checkpoint(bytes, "a");
  } catch (const CheckpointError&) {
  }
  if (size < 16) return 0;
  bytes.resize(size - 16);
  bytes += hash_of(bytes);
  try {
    const CheckpointFile file = decode_checkpoint(bytes, "a");
    (void)decode_checkpoint(encode_checkpoint(file), "again");
  } catch (const CheckpointError&) {
  }
  return 0;
}
