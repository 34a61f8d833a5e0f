#include "sim/tools/compare/unpickler.h"
#include "sim/weights/tensor.h"
#include "tests/fuzz/fuzz.h"

// data.pkl of torch.save by itself, beside two storages.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  static const std::vector<std::byte> storage(256);
  static const std::map<std::string, std::span<const std::byte>> files = {
      {"archive/data/0", storage}, {"archive/data/1", std::span(storage).first(3)}};
  try {
    const Pickle pickle = unpickle(std::as_bytes(std::span(data, size)), files, "archive/data/");
    fuzz::promised(lead_to_tensors(pickle).size() == pickle.values.size(), "an answer for each");
    for (const PickleValue& value : pickle.values)
      if (value.kind == PickleValue::Kind::foreign) (void)foreign_type(value);
  } catch (const WrongBytes&) {
    return 0;
  }
  return 0;
}
