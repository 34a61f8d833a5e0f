#include <span>

#include "sim/weights/save.h"
#include "tests/fuzz/fuzz.h"

// manifest.json of a state that was exported, beside the files of two tensors.
namespace {

using namespace lockstep;  // NOLINT

std::string npy(size_t bytes) {
  const std::string head = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }       \n";
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(head.size());
  file += '\0';
  return file + head + std::string(bytes, '\x3f');
}

const std::string& exported() {
  static const std::string made = [] {
    fuzz::leave(fuzz::folder() + "/a.npy", npy(12));
    fuzz::leave(fuzz::folder() + "/b.npy", npy(8));
    return fuzz::folder();
  }();
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string& dir = exported();
  fuzz::leave(dir + "/manifest.json", fuzz::text_of(data, size));
  const auto state = read_export(dir);
  if (!state) {
    fuzz::check_errors(state.errors());
    return 0;
  }
  // Every element of each tensor can be read.
  unsigned sum = 0;
  for (const CheckpointTensor& tensor : state.value().tensors) {
    const auto bytes =
        std::span(tensor.first, static_cast<size_t>(tensor.numel() * bytes_of(tensor.dtype)));
    for (const std::byte byte : bytes) sum += std::to_integer<unsigned>(byte);
  }
  static volatile unsigned kept;
  kept = sum;
  return 0;
}
