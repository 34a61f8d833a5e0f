#include <algorithm>

#include "scenarios/image_files.h"
#include "tests/fuzz/fuzz.h"

// MNIST's two files for training, at a line "---" one after the other, and the same bytes as one of
// CIFAR-10's for test.
namespace {

using namespace lockstep;  // NOLINT

void look_at(const std::string& kind, const std::string& dir, const std::string& set) {
  const auto samples = count_images(kind, dir, set);
  if (!samples) return fuzz::check_errors(samples.errors());
  Part data;
  data.kind = kind;
  data.options.set("path", dir);
  data.options.set("set", set);
  const auto images = load_images(data, std::min<int64_t>(samples.value(), 100));
  fuzz::promised(static_cast<bool>(images), "what was counted can be read");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string dir = fuzz::folder();
  const std::string_view bytes = fuzz::text_of(data, size);
  const auto parts = fuzz::parts_of(bytes, "\n---\n", 2);
  const auto mnist = file_names("mnist", "train");
  fuzz::leave(dir + "/" + mnist[0], parts.front());
  fuzz::leave(dir + "/" + mnist[1], parts.back());
  fuzz::leave(dir + "/" + file_names("cifar10", "test").front(), bytes);
  look_at("mnist", dir, "train");
  look_at("cifar10", dir, "test");
  return 0;
}
