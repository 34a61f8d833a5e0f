#include "scenarios/parameter_list.h"
#include "tests/fuzz/fuzz.h"

// Names and shapes of a model's parameters: as JSON, and as the header of a safetensors file.
namespace {

using namespace lockstep;  // NOLINT

void check(const Expected<ParameterList>& list) {
  if (!list) return fuzz::check_errors(list.errors());
  for (const ListedParameter& one : list.value().parameters) {
    const auto again = listed_parameter(to_text(one));
    fuzz::promised(again && again->name == one.name && again->shape == one.shape,
                   "a parameter that was read can be written in a scenario");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static fuzz::MemoryFile alone, packed;
  const std::string_view text = fuzz::text_of(data, size);
  check(read_parameter_list(alone.holding(text)));
  const uint64_t length = text.size();
  std::string tensors(reinterpret_cast<const char*>(&length), sizeof length);
  tensors += text;
  check(read_parameter_list(packed.holding(tensors)));
  return 0;
}
