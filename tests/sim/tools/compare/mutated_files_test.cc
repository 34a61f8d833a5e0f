#include <random>

#include "sim/tools/compare/comparison.h"
#include "tests/sim/tools/compare/made.h"

// Valid files with bytes changed, removed and inserted at random: each is read, compared with
// itself and with the original, or refused; nothing else happens. Of worth under the sanitizers.

namespace lockstep {
namespace {

std::string mutated(std::string bytes, std::mt19937_64* random) {
  const auto below = [&](size_t limit) { return static_cast<size_t>((*random)() % limit); };
  constexpr std::string_view kTelling("\x00\xff\x7f\x80\x01(.Rtus}])cQX", 17);
  for (size_t changes = 1 + below(4); changes > 0 && bytes.size() > 1; --changes) {
    const size_t at = below(bytes.size());
    switch (below(5)) {
      case 0:
        bytes[at] = static_cast<char>(below(256));
        break;
      case 1:
        bytes[at] = kTelling[below(kTelling.size())];
        break;
      case 2:
        bytes.erase(at, 1 + below(16));
        break;
      case 3:
        bytes.insert(at, bytes.substr(below(bytes.size()), 1 + below(16)));
        break;
      default:
        if (below(8) == 0) bytes.resize(at + 1);
        bytes[below(bytes.size())] ^= static_cast<char>(1 << below(8));
    }
  }
  return bytes;
}

class MutatedFiles : public testing::FolderTest {
 protected:
  void mutate(const std::string& name, int times) {
    const std::string path =
        std::string(LOCKSTEP_SOURCE_DIR "/tests/sim/tools/compare/data/") + name;
    const std::string original = testing::read_whole(path);
    const auto reference = read_weights_file(path);
    ASSERT_TRUE(reference);
    int read = 0;
    for (int seed = 0; seed < times; ++seed) {
      std::mt19937_64 random(static_cast<uint64_t>(seed));
      const auto checkpoint = read_weights_file(write("file", mutated(original, &random)));
      if (!checkpoint) {
        EXPECT_FALSE(checkpoint.errors().front().message.empty());
        continue;
      }
      ++read;
      EXPECT_TRUE(compare_checkpoints(checkpoint.value(), checkpoint.value(), {}).agrees());
      (void)compare_checkpoints(checkpoint.value(), reference.value(), {1e-5, 1e-8});
    }
    EXPECT_GT(read, times / 50);  // some changes hit numbers alone
    EXPECT_LT(read, times);
  }
};

TEST_F(MutatedFiles, OfTorch) { mutate("pytorch.pt", 3000); }
TEST_F(MutatedFiles, OfSafetensors) { mutate("library.safetensors", 3000); }

// Where damage tells most: data.pkl begins 64 bytes into the file, the directory is at its end.
TEST_F(MutatedFiles, EveryByteOfTheArchive) {
  const std::string original =
      testing::read_whole(LOCKSTEP_SOURCE_DIR "/tests/sim/tools/compare/data/pytorch.pt");
  for (size_t at = 0; at < original.size(); ++at) {
    std::string bytes = original;
    bytes[at] = static_cast<char>(~bytes[at]);
    (void)read_weights_file(write("file", bytes));
  }
}

}  // namespace
}  // namespace lockstep
