#include "sim/tools/compare/comparison.h"
#include "tests/fuzz/fuzz.h"

// A checkpoint: a zip archive of torch.save, or safetensors. What is read is read to its last byte.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  static fuzz::MemoryFile file;
  auto checkpoint = read_weights_file(file.holding(fuzz::text_of(data, size)));
  if (!checkpoint) {
    fuzz::check_errors(checkpoint.errors());
    return 0;
  }
  // A tensor may be a file of holes, or the same bytes a million times over by its strides: the
  // comparison's time is that of its elements.
  int64_t elements = 0;
  for (const CheckpointTensor& tensor : checkpoint.value().tensors) {
    if (tensor.numel() > 1'000'000 - elements) return 0;
    elements += tensor.numel();
  }
  fuzz::promised(compare_checkpoints(checkpoint.value(), checkpoint.value(), {}).agrees(),
                 "a file agrees with itself");
  (void)below_key(checkpoint.value(), "state_dict");
  return 0;
}
